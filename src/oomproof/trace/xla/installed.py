"""Whether XLA's GPU compiler is installed. It is looked for, never imported: that is the child's business."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from oomproof.errors import CannotDo
from oomproof.frameworks.versions import XLA_PARTS

INSTALL = "pip install 'oomproof[xla]'"
NEEDED = ("jax", "jax-cuda13-plugin", "nvidia-cuda-nvcc")


def is_xla_installed() -> bool:
    return not missing()


def missing() -> tuple[str, ...]:
    """Packages that the compiler needs and that are not there."""
    return tuple(name for name in NEEDED if not _version(name))


def list_versions() -> tuple[str, ...]:
    """What a compiler's answer depends on beside the question."""
    return tuple(f"{name} {_version(name)}" for name in (*NEEDED, *XLA_PARTS))


def compiler_version() -> str:
    return f"XLA of jax {_version('jax')}"


def require_xla(what: str) -> None:
    """``what`` is the reason, as the beginning of a sentence."""
    lacking = missing()
    if lacking:
        raise CannotDo(f"{what} needs XLA's compiler ({', '.join(lacking)} not installed here): {INSTALL}")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
