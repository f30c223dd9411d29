"""A process that waits for another which has died: it ends with words, not with a socket's error or never."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from oomproof.errors import JobError
from oomproof.run.guard.failures import is_out_of_memory

Given = ParamSpec("Given")
Found = TypeVar("Found")
Self = TypeVar("Self", bound="Meeting")


class Meeting:
    """What talks to other processes; ``lost`` says why it cannot any more."""

    lost: Exception | None = None

    def refuse_if_lost(self) -> None:
        """A process that went on would talk of another thing than those who still wait: all of them would stand."""
        if self.lost is not None:
            raise type(self.lost)(str(self.lost))


def collective(method: Callable[Concatenate[Self, Given], Found]) -> Callable[Concatenate[Self, Given], Found]:
    """For methods that talk to other processes. Backends raise a RuntimeError when one has closed its connection
    (gloo), or has not answered for as long as ``init_process_group(timeout=...)`` says."""

    @wraps(method)
    def run(self: Self, /, *given: Given.args, **named: Given.kwargs) -> Found:
        self.refuse_if_lost()
        try:
            return method(self, *given, **named)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            said = " ".join(str(error).split())[:200]
            self.lost = JobError(
                f"another process of this training has ended or does not answer ({said}): this one stops, with "
                "parameters and optimizer as before this step. Next: `oomproof explain LOG` with the log of the one "
                "that ended first, then go on from a checkpoint"
            )
            raise self.lost from error

    return run
