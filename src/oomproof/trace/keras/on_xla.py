"""A compiled Keras model's training step as XLA lays it out for a GPU, as a Timeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from oomproof.errors import JobError
from oomproof.frameworks.quiet import silent
from oomproof.memory.about import About
from oomproof.memory.timeline import Timeline
from oomproof.trace.keras.on_tensorflow import build_variables, describe_model, layers_of, variables_of, watching_layers
from oomproof.trace.tensorflow.graph.capture import tensorflow
from oomproof.trace.xla.assignment import Place, read_proto, timeline_of
from oomproof.trace.xla.compiler import compile_step
from oomproof.trace.xla.names import in_jax, in_tensorflow
from oomproof.trace.xla.request import model_request
from oomproof.trace.xla.targets import Target

Backend = Literal["tensorflow", "jax"]
WORKSPACES = (
    "what cuDNN's algorithms take when XLA tries them on the GPU, before the first step; the workspace of the one it "
    "keeps is priced by shape"
)


def trace_with_xla(
    model: Any,
    batch: Sequence[Any],
    target: Target,
    *,
    backend: Backend = "tensorflow",
    about: About | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> Timeline:
    """``model`` is compiled, on Keras's TensorFlow backend; ``batch`` is what fit would hand to its train_step, as
    TensorSpecs. With ``backend="jax"`` the child builds the model again on JAX and lowers that step."""
    progress("building the model")
    build_variables(model, batch)
    place: Place
    if backend == "jax":
        compiled = compile_step(model_request(model, tuple(batch)), target, progress=progress)
        roles = [(kind, owner_of(name) if kind != "input" else name) for kind, name in compiled.roles]
        place = in_jax(layers_of(model), model.optimizer.name)
    else:
        progress("tracing the step")
        module, roles, scopes = _lower_step(model, batch)
        compiled = compile_step({}, target, hlo=module, progress=progress)
        place = in_tensorflow(scopes, model.optimizer.name)
    progress("reading XLA's plan")
    known = describe_model(model, about or About())
    found = replace(
        known,
        framework=f"{backend}, compiled by the XLA of jax {compiled.version}",
        allocator="bfc",
        limits=backend,
        not_counted=(WORKSPACES, *known.not_counted),
        details={**known.details, "xla_target": target.gpu, "xla_bytes": dict(compiled.sizes)},
    )
    return timeline_of(read_proto(compiled.proto), roles, place, found)


def _lower_step(model: Any, batch: Sequence[Any]) -> tuple[bytes, list[tuple[str, str]], dict[str, str]]:
    """The step as TensorFlow hands it to XLA, (kind, owner) of each parameter, and the layer of each scope."""
    tf = tensorflow()
    scopes: dict[str, str] = {}
    # TensorFlow 2.21 hands no step to XLA that takes a dict: boxes and labels go in one by one.
    given = tf.nest.flatten(tuple(batch))
    step = tf.autograph.experimental.do_not_convert(
        lambda *data: model.train_step(tf.nest.pack_sequence_as(tuple(batch), data))
    )
    function = tf.function(step, autograph=False, jit_compile=True)
    # What the step's own code raises while it is traced is not a word of XLA's: it is told as it came.
    with watching_layers(model, scopes), silent():
        concrete = function.get_concrete_function(*given)
    try:
        with silent():
            # For this machine's CPU: TensorFlow 2.21 refuses a step with variables for a GPU that is not there. Of the
            # operations of a vision model, few are handed to XLA in another form for a GPU.
            written = function.experimental_get_compiler_ir(*given)(stage="hlo_serialized")
    # TensorFlow says in this way that an operation has no XLA kernel, or a shape is known only when the step runs.
    except (ValueError, NotImplementedError, tf.errors.OpError) as error:
        reason = " ".join(str(error).split())[:300]
        raise JobError(
            f"TensorFlow cannot hand this step to XLA: {reason}; --set jit_compile=false forecasts it without"
        ) from error
    module = _module(written)
    # Maps in one order: the same step is the same bytes in every process, by which the compiler's answer is found.
    return module.SerializeToString(deterministic=True), _roles(model, concrete, module), scopes


def _module(written: bytes) -> Any:
    from oomproof.frameworks.tensorflow import parse_hlo_module

    module = parse_hlo_module(written)
    module.name = module.entry_computation_name = "step"  # TensorFlow numbers its functions in the order they are made
    for computation in module.computations:
        if computation.id == module.entry_computation_id:
            computation.name = module.name
        for instruction in computation.instructions:
            if instruction.opcode == "copy":  # says nothing here, and the way to the compiler has no word for it
                instruction.opcode = "reshape"
            for name in ("source_file", "source_line"):  # a line that moves makes no other program
                instruction.metadata.ClearField(name)
    return module


def _roles(model: Any, concrete: Any, module: Any) -> list[tuple[str, str]]:
    """Parameters are the function's arguments in their order: the batch, then what it holds."""
    variables = variables_of(model)
    captured = {id(inside): outside for outside, inside in concrete.graph.captures}
    roles = []
    for tensor in concrete.inputs:
        outside = captured.get(id(tensor))
        if outside is None:
            roles.append(("input", tensor.op.name))
        else:
            roles.append(variables.get(id(outside), ("buffer", "(constants)")))
    entry = next(each for each in module.computations if each.id == module.entry_computation_id)
    count = sum(instruction.opcode == "parameter" for instruction in entry.instructions)
    if count != len(roles):
        raise JobError(
            f"XLA has {count} parameters for a step of {len(roles)} arguments (TensorFlow {tensorflow().__version__}): "
            "expected one each; --set jit_compile=false forecasts the step without XLA"
        )
    return roles


def owner_of(variable: str) -> str:
    """conv2d/kernel belongs to conv2d, adam/conv2d_kernel_momentum to the optimizer's variables."""
    return ".".join(variable.split("/")[:-1]) or variable
