"""What a step is handed, as shapes and types: from the user's data, or made up from the model and its loss."""

from __future__ import annotations

from typing import Any

from oomproof.errors import InputError

USUAL = 32
"""images in a batch where nothing says otherwise, as in Model.fit"""
USUAL_SIZE = (256, 256)
"""pixels of an image where neither the model nor the data say it"""
_SPARSE = ("sparse_", "sparsecategorical")


def batch_size(data: Any) -> int:
    """What the data say of the batch: that of a batched tf.data pipeline, or Keras's usual one."""
    spec = getattr(data, "element_spec", None)
    if spec is not None:
        import tensorflow as tf

        first = next((each.shape for each in tf.nest.flatten(spec) if each.shape.rank), None)
        if first is not None and first[0] is not None:
            return int(first[0])
    seen: Any = data
    while seen is not None and spec is not None:
        size = getattr(seen, "_batch_size", None)
        if size is not None and (known := _constant(size)) is not None:
            return known
        seen = getattr(seen, "_input_dataset", None)
    return USUAL


def _constant(size: Any) -> int | None:
    import tensorflow as tf

    value = tf.get_static_value(size)
    return None if value is None else int(value)


def batch_of(model: Any, data: Any, images: int, image_size: tuple[int, int] | None) -> tuple[Any, ...]:
    """(x, y) or (x, y, weights) for ``images`` images, as TensorSpecs."""
    if data is None:
        return _made_up(model, images, image_size)
    import tensorflow as tf

    spec = data.element_spec if hasattr(data, "element_spec") else data
    if not isinstance(spec, (tuple, list)):
        spec = (spec,)
    before = _image_sides(spec[0])

    def resized(part: Any) -> Any:
        """Masks have the images' sides, and go with them."""
        return _of(part, images, image_size if before is not None and _sides(part) == before else None)

    def image(part: Any) -> Any:
        return _of(part, images, image_size if _image_sides(part) is not None else None)

    inputs = tf.nest.map_structure(image, spec[0])
    return (inputs, *tf.nest.map_structure(resized, tuple(spec[1:])))


def image_size(model: Any, data: Any) -> tuple[int, int] | None:
    """Of the images that the model is trained on: as it is built, as the data have it, or a usual one where the model
    takes any; None where its input is no image."""
    tensors = list(getattr(model, "inputs", None) or [])
    spec = getattr(data, "element_spec", data)
    first = spec[0] if isinstance(spec, (tuple, list)) else spec
    if len(tensors) > 1 or (tensors and len(tensors[0].shape) != 4):
        return None
    if tensors and None not in tensors[0].shape[1:3]:
        return int(tensors[0].shape[1]), int(tensors[0].shape[2])
    given = _image_sides(first)
    if given is not None and None not in given:
        return int(given[0]), int(given[1])
    return USUAL_SIZE if tensors or given is not None else None


def _sides(part: Any) -> Any:
    """Height and width of a batch of images or masks."""
    shape = tuple(getattr(part, "shape", ()))
    return tuple(shape[1:3]) if len(shape) in (3, 4) else None


def _image_sides(part: Any) -> Any:
    return _sides(part) if len(getattr(part, "shape", ())) == 4 else None


def _of(part: Any, images: int, image_size: tuple[int, int] | None) -> Any:
    """One tensor of the batch: its first side is the batch's."""
    import tensorflow as tf

    given = part if hasattr(part, "shape") and hasattr(part, "dtype") else tf.convert_to_tensor(part)
    if tf.TensorShape(given.shape).rank is None:
        raise InputError(
            "the data give a tensor of unknown rank; expected shapes that are known before: set them in the pipeline "
            "(tf.ensure_shape), or hand KerasJob(data=...) one batch"
        )
    sides = list(tf.TensorShape(given.shape).as_list())
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
    return tf.TensorSpec(sides, tf.as_dtype(given.dtype))


def _made_up(model: Any, images: int, image_size: tuple[int, int] | None) -> tuple[Any, Any]:
    import keras
    import tensorflow as tf

    if not getattr(model, "inputs", None):
        raise InputError(
            f"the model {model.name} does not say what it is given (no keras.Input), and no data were; expected "
            "KerasJob(model=..., data=a batch or a tf.data.Dataset)"
        )
    inputs = tf.nest.map_structure(lambda part: _of(_at_image_size(part, image_size), images, None), _structure(model))
    tensors = tf.nest.map_structure(lambda part: keras.KerasTensor(tuple(part.shape), dtype=part.dtype.name), inputs)
    outputs = model.compute_output_spec(tensors)
    parts = tf.nest.flatten(outputs)
    losses = _losses(getattr(model, "loss", None), outputs, len(parts))
    targets = [_target(part, loss) for part, loss in zip(parts, losses, strict=True)]
    return inputs, tf.nest.pack_sequence_as(outputs, targets)


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
    import tensorflow as tf

    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    if any(str(name).lower().startswith(each) for each in _SPARSE):
        return tf.TensorSpec(output.shape[:-1], tf.int32)
    return tf.TensorSpec(output.shape, tf.float32)
