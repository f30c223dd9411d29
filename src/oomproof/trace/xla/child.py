"""The child process: ``python -P -m oomproof.trace.xla.child FOLDER``. Compiles a step for a GPU that is not here.

Its own process, because Keras's backend is fixed when Keras is imported, because CUDA's plugin must not disturb the
parent, and because the interpreter crashes at its end once the plugin was used (jax 0.10.2): it leaves by os._exit.

FOLDER holds ``request.json``; the child leaves ``answer.json`` there, and the compiler's HloProto in ``dump``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oomproof.frameworks.jax import compile_hlo
from oomproof.frameworks.keras import build_on_shapes
from oomproof.trace.xla.parent import end_with_parent

OPTIONS = {
    "xla_dump_hlo_as_proto": True,
    # How well the kernels are optimized changes nothing of the memory plan, and takes half of the time.
    "xla_backend_optimization_level": 0,
}


def main(folder: Path) -> int:
    request = json.loads((folder / "request.json").read_text())
    try:
        answer = _compile_step(request, folder)
    # Whatever goes wrong here belongs on the parent's screen in one line; it has no other way to get there.
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    unfinished = folder / "answer.unfinished"
    unfinished.write_text(json.dumps(answer))
    unfinished.replace(folder / "answer.json")
    return 0


def _compile_step(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    import jax
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(
        platform="cuda", topology_name="described", topology="1x1x1", target_config=request["target"]
    )
    device = topology.devices[0]
    options = {**OPTIONS, "xla_dump_to": str(folder / "dump")}
    facts: dict[str, Any] = {}
    if "hlo" in request:
        executable = compile_hlo(Path(request["hlo"]).read_bytes(), device, options)
        memory = executable.get_compiled_memory_stats()
    else:
        lowered, facts = _from_keras(request, jax.sharding.SingleDeviceSharding(device))
        memory = lowered.compile(compiler_options=options).memory_analysis()
    sizes = {name: getattr(memory, f"{name}_size_in_bytes") for name in ("argument", "output", "alias", "temp")}
    found = sorted((folder / "dump").glob("*gpu_after_optimizations.hlo.pb"), key=lambda file: file.stat().st_size)
    return {"hlo": str(found[-1]) if found else "", "sizes": sizes, "version": jax.__version__, **facts}


def _from_keras(request: Mapping[str, Any], sharding: Any) -> tuple[Any, dict[str, Any]]:
    """Keras's training step on JAX, lowered as its fit() would, and (kind, owner) of every parameter."""
    import jax
    import keras

    model = _model(keras, request)
    batch = structure(request["batch"], lambda shape, dtype: keras.KerasTensor(shape, dtype=dtype))
    build_on_shapes(model, batch)
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    groups = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = tuple([jax.ShapeDtypeStruct(each.shape, each.dtype) for each in group] for group in groups)
    data = structure(request["batch"], jax.ShapeDtypeStruct)
    # Unused arguments are held by the caller all the same, so they stay parameters; and parameters keep their order.
    step = jax.jit(model.train_step, donate_argnums=0, keep_unused=True, in_shardings=sharding, out_shardings=sharding)
    kinds = ("parameter", "buffer", "optimizer", "buffer")
    roles = [(kind, each.path) for kind, group in zip(kinds, groups, strict=True) for each in group]
    roles += [("input", f"input {number}") for number in range(len(jax.tree_util.tree_leaves(data)))]
    return step.lower(state, data), {"roles": roles, "keras": keras.__version__}


def _model(keras: Any, request: Mapping[str, Any]) -> Any:
    objects: dict[str, Any] = {}
    for file in request["modules"]:
        objects |= _classes(Path(file))
    with keras.saving.custom_object_scope(objects):
        read = keras.saving.deserialize_keras_object
        # The parent has built this very model from trusted code, or has refused it.
        model = read(request["model"], safe_mode=False)
        training = read(request["compile"], safe_mode=False) if request["compile"] else {}
        optimizer = read(request["optimizer"], safe_mode=False)
    model.compile(**{**training, "optimizer": optimizer, "jit_compile": True})
    return model


def _classes(file: Path) -> dict[str, Any]:
    """Classes and functions of the user's own module."""
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("__")}


def structure(written: Any, make: Callable[[tuple[int, ...], str], Any]) -> Any:
    """A batch from its description: see ``write_structure`` in request.py."""
    kind, content = written
    if kind == "tensor":
        return make(tuple(content[0]), content[1])
    if kind == "dict":
        return {name: structure(each, make) for name, each in content.items()}
    parts = [structure(each, make) for each in content]
    return tuple(parts) if kind == "tuple" else parts


if __name__ == "__main__":
    end_with_parent(Path(sys.argv[1]))
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
