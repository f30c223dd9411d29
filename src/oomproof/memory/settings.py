"""Settings: a value for every name, and which names play a part that every training has.

A batch is ``batch`` to one framework and ``SOLVER.IMS_PER_BATCH`` to another. What is common to all asks for the role;
only a source knows its names.

>>> settings = Settings({"SOLVER.IMS_PER_BATCH": 16, "gpus": 8}, {"batch": "SOLVER.IMS_PER_BATCH", "gpus": "gpus"})
>>> settings.of("batch"), settings.images, settings.with_values({"gpus": 4})["gpus"]
(16, 16, 4)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

Role = Literal[
    "batch", "accumulation", "image size", "precision", "workers", "boxes", "gpus", "reference gpus", "optimizer"
]


class Settings(Mapping[str, Any]):
    """Never changes; equal to a dict with the same values."""

    __slots__ = ("_roles", "_values")

    def __init__(self, values: Mapping[str, Any] | None = None, roles: Mapping[Role, str] | None = None) -> None:
        self._values = dict(values or {})
        self._roles: dict[Role, str] = dict(roles if roles is not None else getattr(values, "_roles", {}))

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Settings({self._values!r})"

    @property
    def roles(self) -> Mapping[Role, str]:
        return self._roles

    def with_values(self, values: Mapping[str, Any]) -> Settings:
        """With other values for some names; roles stay."""
        return Settings({**self._values, **values}, self._roles)

    def without(self, *names: str) -> Settings:
        return Settings({name: value for name, value in self._values.items() if name not in names}, self._roles)

    def name_of(self, role: Role) -> str:
        """The setting that plays a role; empty where none does."""
        name = self._roles.get(role, "")
        return name if name in self._values else ""

    def of(self, role: Role, otherwise: Any = None) -> Any:
        """The value of the setting that plays a role."""
        return self._values.get(self.name_of(role), otherwise)

    @property
    def images(self) -> int:
        """In one forward pass, of all GPUs that share it; 1 where the job does not say."""
        return int(self.of("batch", 1))

    @property
    def sharing(self) -> int:
        """GPUs that share the batch: 1 where it is that of one GPU, as it mostly is."""
        return int(self.of("reference gpus") or self.of("gpus") or 1)

    @property
    def micro_batches(self) -> int:
        """Forward passes for one update."""
        return int(self.of("accumulation", 1))
