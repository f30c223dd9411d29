"""Which versions of a framework oomproof was made for, and how it says that one lacks something it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata

from oomproof.errors import UnsupportedVersion


@dataclass(frozen=True)
class Edge:
    """A framework, and the oldest and newest versions that oomproof's private access to it was tried with."""

    name: str
    package: str
    oldest: str
    newest: str

    @contextmanager
    def names_needed(self) -> Iterator[None]:
        """A name of the framework that is looked up here and is not there means: not this version."""
        try:
            yield
        except (ImportError, AttributeError) as error:
            raise self.missing_error(_missing_name(error)) from error

    def check(self, *names: tuple[object, str]) -> None:
        """Raises for the (owner, attribute) pairs that are not there, all of them in one line."""
        missing = [f"{_name_of(owner)}.{name}" for owner, name in names if not hasattr(owner, name)]
        if missing:
            raise self.missing_error(", ".join(missing))

    def missing_error(self, what: str, oldest: str = "") -> UnsupportedVersion:
        """The error for something that is missing; ``oldest`` where a setting needs a newer version than the rest."""
        present = self.version()
        if oldest:
            return UnsupportedVersion(
                f"{what} needs {self.name} {oldest} or newer, and {present} is installed: "
                f"pip install '{self.package}>={oldest},<{_after(self.newest)}'"
            )
        return UnsupportedVersion(
            f"oomproof was made for {self.name} {self.oldest} to {self.newest}; {present} lacks {what}: "
            f"pip install '{self.package}>={self.oldest},<{_after(self.newest)}'"
        )

    def version(self) -> str:
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return "the installed one"


TORCH = Edge("PyTorch", "torch", "2.4", "2.14")
TORCHVISION = Edge("torchvision", "torchvision", "0.19", "0.29")
TENSORFLOW = Edge("TensorFlow", "tensorflow", "2.16", "2.21")
KERAS = Edge("Keras", "keras", "3.3", "3.15")
LIGHTNING = Edge("Lightning", "lightning", "2.6", "2.6")
JAX = Edge("JAX", "jax", "0.10", "0.10")
TORCH_PRUNING = Edge("torch-pruning", "torch-pruning", "1.6", "1.6")

EDGES = (TORCH, TORCHVISION, TENSORFLOW, KERAS, JAX, TORCH_PRUNING)


def _after(version: str) -> str:
    """The first version that nothing is known of: 2.14 -> 2.15."""
    *front, last = version.split(".")
    return ".".join([*front, str(int(last) + 1)])


def _missing_name(error: ImportError | AttributeError) -> str:
    if isinstance(error, ImportError):
        # Which name a module lacks is in the text alone before Python 3.12.
        found = re.match(r"cannot import name '(\w+)' from '([\w.]+)'", str(error))
        return f"{found[2]}.{found[1]}" if found else str(error.name or error)
    return f"{_name_of(error.obj)}.{error.name}" if error.name else str(error)


def _name_of(owner: object) -> str:
    if isinstance(owner, type):
        return f"{owner.__module__}.{owner.__qualname__}"
    return getattr(owner, "__name__", None) or _name_of(type(owner))


XLA_PARTS = ("jaxlib", "jax-cuda13-pjrt")
"""packages that hold XLA's compiler: what it answers depends on their versions"""
