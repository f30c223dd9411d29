"""What a step is handed, as shapes and types: from the user's data, or made up from the model and its loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oomproof.errors import InputError

USUAL = 32
"""images in a batch where nothing says otherwise, as in Model.fit"""
USUAL_SIZE = (256, 256)
"""pixels of an image where neither the model nor the data say it"""
_SPARSE = ("sparse_", "sparsecategorical")


def example_of(data: Any) -> Any:
    """What is known of one batch: the shapes that a tf.data.Dataset declares; the first batch of a PyDataset, a
    DataLoader, a list of batches, or a function that makes a generator; else the data themselves."""
    if hasattr(data, "element_spec"):
        return data.element_spec
    if isinstance(data, Iterator):
        raise InputError(
            "the data are a generator, and asking it for a batch would take that from the training; expected the "
            "function that makes it: KerasJob(data=batches, ...), not data=batches()"
        )
    if _is_indexed(data):
        return data[0]
    if callable(data) or _is_loader(data):
        first = next(iter(data() if callable(data) else data), None)
        if first is None:
            raise InputError(f"{_name_of(data)} gave no batch; expected at least one to take shapes and types from")
        return first
    return data


def _is_indexed(data: Any) -> bool:
    return _kind(data, "PyDataset", "keras") or (isinstance(data, list) and bool(data) and isinstance(data[0], tuple))


def _is_loader(data: Any) -> bool:
    return _kind(data, "DataLoader", "torch")


def _kind(data: Any, name: str, package: str) -> bool:
    """Told by the names of its classes: neither Keras nor PyTorch is imported for it."""
    return any(each.__name__ == name and each.__module__.split(".")[0] == package for each in type(data).__mro__)


def _name_of(data: Any) -> str:
    return str(getattr(data, "__name__", type(data).__name__))


def comes_in_batches(data: Any) -> bool:
    """Whether it lies with the data how large a batch is; arrays are cut by fit()."""
    if data is None:
        return False
    return hasattr(data, "element_spec") or _is_indexed(data) or callable(data) or _is_loader(data)


def batch_size(data: Any, example: Any) -> int:
    """What the data say of the batch, or Keras's usual one."""
    return find_batch_size(data, example) or USUAL


def find_batch_size(data: Any, example: Any) -> int | None:
    """What the data say of the batch: that of a batched tf.data pipeline, or of the first batch where there is one.
    None for arrays, which fit() cuts."""
    if data is not None and (hasattr(data, "element_spec") or example is not data):
        import keras

        shapes = [each.shape for each in keras.tree.flatten(example) if _rank(each)]
        if shapes and shapes[0][0] is not None:
            return int(shapes[0][0])
    return _of_pipeline(data)


def _of_pipeline(data: Any) -> int | None:
    seen: Any = data if hasattr(data, "element_spec") else None
    if seen is None:
        return None
    from oomproof.frameworks.tensorflow import input_of, read_size

    while seen is not None:
        size = read_size(seen, "batch_size")
        if size is not None and (known := _constant(size)) is not None:
            return known
        seen = input_of(seen)
    return None


def _constant(size: Any) -> int | None:
    import tensorflow as tf

    value = tf.get_static_value(size)
    return None if value is None else int(value)


def batch_of(model: Any, example: Any, images: int, image_size: tuple[int, int] | None) -> tuple[Any, ...]:
    """(x, y) or (x, y, weights) for ``images`` images, as KerasTensors. ``example``: of ``example_of``, or None."""
    if example is None:
        return _make_up_batch(model, images, image_size)
    import keras

    spec = example if isinstance(example, (tuple, list)) else (example,)
    before = _image_sides(spec[0])

    def resize_part(part: Any) -> Any:
        """Masks have the images' sides, and go with them."""
        return _of(part, images, image_size if before is not None and _sides(part) == before else None)

    def image(part: Any) -> Any:
        return _of(part, images, image_size if _image_sides(part) is not None else None)

    inputs = keras.tree.map_structure(image, spec[0])
    return (inputs, *keras.tree.map_structure(resize_part, tuple(spec[1:])))


def choose_image_size(model: Any, example: Any) -> tuple[int, int] | None:
    """Of the images that the model is trained on: as it is built, as the data have it, or a usual one where the model
    takes any; None where its input is not an image."""
    tensors = list(getattr(model, "inputs", None) or [])
    first = example[0] if isinstance(example, (tuple, list)) else example
    if len(tensors) > 1 or (tensors and len(tensors[0].shape) != 4):
        return None
    if tensors and None not in tensors[0].shape[1:3]:
        return int(tensors[0].shape[1]), int(tensors[0].shape[2])
    given = _image_sides(first)
    if given is not None and None not in given:
        return int(given[0]), int(given[1])
    return USUAL_SIZE if tensors or given is not None else None


def _rank(part: Any) -> int | None:
    """How many sides a tensor has; None where that is not known, 0 for what is not a tensor."""
    shape = getattr(part, "shape", ())
    rank: int | None = getattr(shape, "rank", 0) if not isinstance(shape, tuple) else len(shape)
    return rank


def _sides(part: Any) -> Any:
    """Height and width of a batch of images or masks."""
    return tuple(part.shape[1:3]) if _rank(part) in (3, 4) else None


def _image_sides(part: Any) -> Any:
    return _sides(part) if _rank(part) == 4 else None


def _of(part: Any, images: int, image_size: tuple[int, int] | None) -> Any:
    """One tensor of the batch: its first side is the batch's."""
    import keras
    import numpy as np

    given = part if hasattr(part, "shape") and hasattr(part, "dtype") else np.asarray(part)
    if _rank(given) is None:
        raise InputError(
            "the data give a tensor of unknown rank; expected shapes that are known before: set them in the pipeline "
            "(tf.ensure_shape), or hand KerasJob(data=...) one batch"
        )
    sides = [None if side is None else int(side) for side in given.shape]
    if not sides:
        raise InputError("the data give single numbers; expected batches: call dataset.batch(...) as fit() wants it")
    sides[0] = images
    if image_size is not None and len(sides) in (3, 4):
        sides[1:3] = image_size
    if None in sides:
        shown = ", ".join("?" if side is None else str(side) for side in sides)
        raise InputError(
            f"the data give a tensor ({shown}) with a side that is not known; say image_size=HxW where it is an "
            "image's, or hand KerasJob(data=...) one batch"
        )
    return keras.KerasTensor(tuple(sides), dtype=keras.backend.standardize_dtype(given.dtype))


def _make_up_batch(model: Any, images: int, image_size: tuple[int, int] | None) -> tuple[Any, Any]:
    import keras

    if not getattr(model, "inputs", None):
        raise InputError(
            f"the model {model.name} does not say what it is given (no keras.Input), and no data were; expected "
            "KerasJob(model=..., data=a batch or a tf.data.Dataset)"
        )
    tree = keras.tree
    inputs = tree.map_structure(lambda part: _of(_at_image_size(part, image_size), images, None), _structure(model))
    outputs = model.compute_output_spec(inputs)
    parts = tree.flatten(outputs)
    losses = _losses(getattr(model, "loss", None), outputs, len(parts))
    targets = [_target(part, loss) for part, loss in zip(parts, losses, strict=True)]
    return inputs, tree.pack_sequence_as(outputs, targets)


def _structure(model: Any) -> Any:
    """The inputs as they are nested; a Sequential model that was never called does not tell (Keras 3.15)."""
    return model.inputs[0] if len(model.inputs) == 1 else model.input


def _at_image_size(part: Any, image_size: tuple[int, int] | None) -> Any:
    import keras

    shape = list(part.shape)
    if len(shape) == 4 and image_size is not None:
        shape[1:3] = image_size
    return keras.KerasTensor(tuple(shape), dtype=part.dtype)


def _losses(loss: Any, outputs: Any, count: int) -> list[Any]:
    if isinstance(loss, dict):
        names = list(outputs) if isinstance(outputs, dict) else list(loss)
        return [loss.get(name) for name in names] if len(names) == count else [None] * count
    if isinstance(loss, (list, tuple)) and len(loss) == count:
        return list(loss)
    return [loss] * count


def _target(output: Any, loss: Any) -> Any:
    """What the loss holds against an output: numbers of classes for sparse losses, else the output's own shape."""
    import keras

    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    if any(str(name).lower().startswith(each) for each in _SPARSE):
        return keras.KerasTensor(output.shape[:-1], dtype="int32")
    return keras.KerasTensor(output.shape, dtype="float32")
