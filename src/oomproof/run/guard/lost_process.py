"""A process that waits for another which has died: it ends with words, not with a socket's error or never."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from oomproof.errors import JobError
from oomproof.run.guard.failures import is_out_of_memory

Given = ParamSpec("Given")
Found = TypeVar("Found")


def collective(method: Callable[Given, Found]) -> Callable[Given, Found]:
    """For what talks to other processes. Backends raise a RuntimeError when one has closed its connection (gloo), or
    has not answered for as long as ``init_process_group(timeout=...)`` says."""

    @wraps(method)
    def run(*given: Given.args, **named: Given.kwargs) -> Found:
        try:
            return method(*given, **named)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            said = " ".join(str(error).split())[:200]
            raise JobError(
                f"another process of this training has ended or does not answer ({said}): this one stops, with "
                "parameters and optimizer as before this step. Next: `oomproof explain LOG` with the log of the one "
                "that ended first, then go on from a checkpoint"
            ) from error

    return run
