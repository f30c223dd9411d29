"""A dataset in host RAM: what its annotations take as Python objects, what workers copy of them, what a cache keeps.

Forked workers share the pages of the process that started them until somebody writes, and reading a Python object
writes its reference count. So lists of dicts are copied into every worker page by page, as it reads them; arrays of
bytes are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

PAGE = 4096


@dataclass(frozen=True)
class HostData:
    """Bytes, but for ``readings``. A Timeline keeps them as ``about.dataset``."""

    listed: int = 0
    """annotations as lists and dicts"""
    numbers: int = 0
    """of them, numbers: small objects with a reference count each"""
    containers: int = 0
    """of them, the heads of lists and dicts, which have reference counts too; what they point with has none"""
    readings: int = 1
    """stretches of memory that are read at a time: objects where they lie as they were annotated, images where those of
    an image lie together"""
    packed: int = 0
    """annotations as one array of pickled bytes, as Detectron2 has them"""
    decoded: int = 0
    """all images as they are decoded: three bytes a pixel"""

    def as_mapping(self) -> Mapping[str, int]:
        return asdict(self)

    def count_copied(self, workers: int, *, for_ever: bool) -> int:
        """Bytes of the list that forked workers have copied, all together: after an epoch, in which each reads a part
        of the images, or ``for_ever``, when each has read them all."""
        if not workers:
            return 0
        written = (self.numbers, self.containers)
        return sum(int(workers * part * self._share(part, workers, for_ever)) for part in written)

    def _share(self, part: int, workers: int, for_ever: bool) -> float:
        """Of the pages that one worker writes to. A page holds parts of several readings; it stays shared only if none
        of them falls to the worker."""
        if for_ever or workers == 1:
            return 1.0
        on_a_page = PAGE / max(1.0, part / max(1, self.readings)) + 1
        return float(1 - (1 - 1 / workers) ** on_a_page)


def host_data_of(dataset: Mapping[str, int]) -> HostData | None:
    """From ``about.dataset``; None where nothing is known."""
    known = {name: value for name, value in dataset.items() if name in HostData.__dataclass_fields__}
    return HostData(**known) if known else None
