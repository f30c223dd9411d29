"""A Keras model that runs on JAX in this process: its step is lowered here, and compiled for a GPU by the child."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from oomproof.memory.about import About
from oomproof.memory.timeline import Timeline
from oomproof.memory.validation import as_validation
from oomproof.trace.keras.on_tensorflow import describe_model, layers_of
from oomproof.trace.keras.on_xla import WORKSPACES, owner_of
from oomproof.trace.xla.assignment import read_proto, timeline_of
from oomproof.trace.xla.compiler import compile_step
from oomproof.trace.xla.names import in_jax
from oomproof.trace.xla.targets import Target


def trace_on_jax(
    model: Any,
    batch: Sequence[Any],
    target: Target,
    *,
    about: About,
    validates: bool = False,
    progress: Callable[[str], None] = lambda text: None,
) -> Timeline:
    """``model`` is compiled and built, as fit has it before its first step; ``batch`` is of KerasTensors. With
    ``validates`` it is the step of evaluate, beside the optimizer's state."""
    progress("lowering the step")
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    module, roles = _lower(model, batch, validates)
    compiled = compile_step({}, target, hlo=module, progress=progress)
    progress("reading XLA's plan")
    known = describe_model(model, about)
    found = replace(
        known,
        framework=f"jax, compiled by the XLA of jax {compiled.version}",
        allocator="bfc",
        limits="jax",
        not_counted=(WORKSPACES, *known.not_counted),
        details={**known.details, "xla_target": target.gpu, "xla_bytes": dict(compiled.sizes)},
    )
    place = in_jax(layers_of(model), model.optimizer.name)
    named = [(kind, owner_of(name) if kind != "input" else name) for kind, name in roles]
    step = timeline_of(read_proto(compiled.proto), named, place, found)
    return as_validation(step) if validates else step


def _lower(model: Any, batch: Sequence[Any], validates: bool) -> tuple[bytes, list[tuple[str, str]]]:
    """The step as an HloModuleProto for a GPU, and (kind, variable) of every parameter of it."""
    import jax
    import keras

    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([jax.ShapeDtypeStruct(each.shape, each.dtype) for each in group] for group in groups)
    data = keras.tree.map_structure(lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype), tuple(batch))
    # Unused arguments are held by the caller all the same, so they stay parameters; and parameters keep their order.
    if validates:
        step = jax.jit(lambda state, data: model.test_step((state[0], state[1], state[3]), data), keep_unused=True)
    else:
        step = jax.jit(model.train_step, donate_argnums=0, keep_unused=True)
    lowered = step.trace(state, data).lower(lowering_platforms=("cuda",))
    kinds = ("parameter", "buffer", "optimizer", "buffer")
    roles = [(kind, each.path) for kind, group in zip(kinds, groups, strict=True) for each in group]
    roles += [("input", f"input {number}") for number in range(len(jax.tree_util.tree_leaves(data)))]
    return lowered.compiler_ir("hlo").as_serialized_hlo_module_proto(), roles
