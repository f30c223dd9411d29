"""How many values a step may ask for while it is traced, where its tracer's user would rather trace a smaller one.

Values (which boxes overlap, which anchors match) have to be computed, image by image. A step that asks for none is
traced as quickly with many images as with few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from oomproof.errors import JobError

_most: ContextVar[int | None] = ContextVar("most", default=None)


class AsksForMore(JobError):
    """The step was given up: it asks for more values than it was to."""


@contextmanager
def asking_at_most(count: int | None) -> Iterator[None]:
    """A step that is traced inside and asks for more than ``count`` values raises AsksForMore; None is no limit."""
    token = _most.set(count)
    try:
        yield
    finally:
        _most.reset(token)


def several_asked(asked: Mapping[str, int]) -> int:
    """How often more than a single number was asked for. Single numbers (an optimizer's count of steps, a loss) are
    asked for once, however many images there are, or cost nothing."""
    return sum(count for name, count in asked.items() if name != "_local_scalar_dense")


def check_patience(asked: Mapping[str, int]) -> None:
    """Raises AsksForMore where a step has asked for more than it may."""
    most = _most.get()
    if most is not None and several_asked(asked) > most:
        raise AsksForMore(f"the step asks for more than {most} values: trace it with fewer images")
