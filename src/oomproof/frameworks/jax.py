"""All that oomproof uses of JAX beyond its documented interface. Made for JAX 0.10, in which each name was seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.frameworks.versions import JAX


def probe() -> None:
    """The names behind ``Lowered.compile``; they are imported where they are used."""
    with JAX.names_needed():
        from jax._src import compiler
        from jax._src.interpreters import mlir
        from jax._src.lib import _jax, xla_client
        from jax._src.lib.mlir import ir
    JAX.check(
        (compiler, "get_compile_options"),
        (mlir, "make_ir_context"),
        (xla_client, "XlaComputation"),
        (ir, "Module"),
        (_jax, "DeviceList"),
        (_jax.mlir, "xla_computation_to_mlir_module"),
    )


def compile_hlo(module: bytes, device: Any, options: Mapping[str, Any]) -> Any:
    """Compiles an HloModuleProto. JAX has no public door for one; these are the steps behind ``Lowered.compile``."""
    probe()
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax, xla_client
    from jax._src.lib.mlir import ir

    stable = _jax.mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(module))
    with mlir.make_ir_context():
        parsed = ir.Module.parse(stable)
    settings = compiler.get_compile_options(
        num_replicas=1, num_partitions=1, env_options_overrides={name: str(value) for name, value in options.items()}
    )
    return device.client.compile(parsed, _jax.DeviceList((device,)), settings)
