"""Reads the user's tf.data.Dataset without running it: the Python objects that were chained, and inside the functions
of interleave and flat_map the operations that make datasets.

Attributes of TensorFlow's dataset classes are private. Seen in TensorFlow 2.21; what is missing is told as not counted.
"""

from __future__ import annotations

from typing import Any

from oomproof.data.pipeline.stages import GIVEN, UNKNOWN, Options, Part, Stage, kind_of
from oomproof.errors import InputError
from oomproof.trace.tensorflow.graph.capture import tensorflow

SETTINGS = (
    "buffer_size",
    "batch_size",
    "num_parallel_calls",
    "cycle_length",
    "block_length",
    "buffer_output_elements",
    "prefetch_input_elements",
    "size",
)
_PARALLEL_READS = "num_parallel_reads"
_DECODERS = ("DecodeJpeg", "DecodePng", "DecodeImage", "DecodeBmp", "DecodeGif", "DecodeAndCropJpeg", "DecodeWebP")
_PYTHON = ("PyFunc", "EagerPyFunc", "PyFuncStateless")


def read(dataset: Any) -> tuple[Stage, Options]:
    """The last stage of the dataset (with all before it), and its options."""
    tf = tensorflow()
    if not isinstance(dataset, tf.data.Dataset):
        raise InputError(
            f"expected a tf.data.Dataset, got {type(dataset).__name__}; give the one that model.fit() is called with"
        )
    return _stage(dataset), _options(dataset.options())


def _options(given: Any) -> Options:
    rewriting = given.experimental_optimization
    default = rewriting.apply_default_optimizations is not False
    tuned = given.autotune.enabled is not False

    def on(value: bool | None) -> bool:
        return bool(value) if value is not None else default

    return Options(
        autotune=tuned,
        inject_prefetch=tuned and on(rewriting.inject_prefetch),
        map_parallelization=tuned and on(rewriting.map_parallelization),
    )


def _stage(dataset: Any) -> Stage:
    from oomproof.frameworks.tensorflow import (
        file_of,
        find_held_tensors,
        function_of,
        inputs_of,
        read_size,
        within_adapter,
    )

    dataset = within_adapter(dataset)
    kind = kind_of(type(dataset).__name__)
    settings = {}
    for name in SETTINGS:
        value = _number(read_size(dataset, name))
        if value is not None:
            settings[name] = value
    reads = _number(read_size(dataset, _PARALLEL_READS))
    if reads is not None:
        settings[_PARALLEL_READS] = reads
    tensors = find_held_tensors(dataset) if kind in ("Tensor", "TensorSlice") else ()
    facts = set()
    if kind == "Cache" and _text(file_of(dataset)):
        facts.add("on_disk")
    function = function_of(dataset)
    inner = None
    if function is not None:
        facts |= _facts(function.graph)
        inner = _find_dataset(function.graph)
    return Stage(
        kind=kind,
        parts=_parts(dataset.element_spec),
        inputs=tuple(_stage(each) for each in inputs_of(dataset)),
        settings=settings,
        elements=int(dataset.cardinality()),
        inner=inner,
        own=sum(_bytes(each) for each in tensors),
        facts=frozenset(facts),
    )


def _parts(spec: Any) -> tuple[Part, ...]:
    """The tensors of an element; ragged and sparse ones count as if they were dense."""
    tf = tensorflow()
    found: list[Part] = []
    for each in tf.nest.flatten(spec):
        if isinstance(each, tf.data.DatasetSpec):
            found += _parts(each.element_spec)
        elif hasattr(each, "shape") and hasattr(each, "dtype"):
            found.append(_part(each.shape, each.dtype))
    return tuple(found)


def _part(shape: Any, dtype: Any) -> Part:
    tf = tensorflow()
    sides = None if shape.rank is None else tuple(shape.as_list())
    return Part(sides, dtype.name, 0 if dtype == tf.string else max(1, dtype.size))


def _number(value: Any) -> int | None:
    """The value of a setting: a number, or a tensor that holds one."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    tf = tensorflow()
    known = tf.get_static_value(value) if tf.is_tensor(value) else None
    return int(known) if known is not None and known.ndim == 0 else None


def _text(value: Any) -> bytes:
    known = tensorflow().get_static_value(value)
    return b"unknown" if known is None else bytes(known.item()) if hasattr(known, "item") else bytes(known)


def _bytes(tensor: Any) -> int:
    tf = tensorflow()
    if tensor.dtype == tf.variant:
        return 0
    if tensor.dtype != tf.string:
        return int(tensor.shape.num_elements()) * int(tensor.dtype.size)
    return 24 * int(tensor.shape.num_elements()) + int(tf.reduce_sum(tf.strings.length(tensor)))


def _facts(graph: Any) -> set[str]:
    """What a function does that matters for memory, the functions that it calls included."""
    from oomproof.frameworks.tensorflow import functions_in

    found = set()
    operations = list(graph.get_operations())
    for function in functions_in(graph):
        inside = getattr(function, "graph", None)
        operations += list(inside.get_operations()) if inside is not None else []
    for operation in operations:
        if operation.type in _PYTHON or operation.type == "GeneratorDataset":
            found.add("python")
        if operation.type in _DECODERS:
            found.add("decodes")
        if operation.op_def.is_stateful and operation.type not in ("Placeholder", "Assert"):
            found.add("stateful")
    return found


def _find_dataset(graph: Any) -> Stage | None:
    """The dataset that a function makes, read from its operations."""
    for output in graph.outputs:
        operation = output.op
        while operation.type == "Identity":
            operation = operation.inputs[0].op
        if "Dataset" in operation.type:
            return _stage_of_operation(operation)
    return None


def _stage_of_operation(operation: Any) -> Stage:
    inputs, settings, facts = [], {}, set()
    values = iter(operation.inputs)
    for argument in operation.op_def.input_arg:
        if argument.type_list_attr or argument.number_attr:
            many = operation.get_attr(argument.type_list_attr or argument.number_attr)
            tensors = [next(values) for _ in range(many if isinstance(many, int) else len(many))]
        else:
            tensors = [next(values)]
        for tensor in tensors:
            if argument.name.startswith("input_dataset"):
                known = "Dataset" in tensor.op.type
                inputs.append(_stage_of_operation(tensor.op) if known else Stage(GIVEN, ()))
            elif argument.name in SETTINGS and (value := _number(tensor)) is not None:
                settings[argument.name] = value
            elif argument.name == "filename" and _text(tensor):
                facts.add("on_disk")
    kind = kind_of(operation.type)
    names = {attribute.name for attribute in operation.op_def.attr}
    parts: tuple[Part, ...] = ()
    if {"output_shapes", "output_types"} <= names:
        shapes, types = operation.get_attr("output_shapes"), operation.get_attr("output_types")
        parts = tuple(_part(_shape(shape), dtype) for shape, dtype in zip(shapes, types, strict=True))
    elif kind == "TFRecord":
        parts = (Part((), "string", 0),)
    return Stage(kind, parts, tuple(inputs), settings, UNKNOWN, facts=frozenset(facts))


def _shape(proto: Any) -> Any:
    return tensorflow().TensorShape(proto)
