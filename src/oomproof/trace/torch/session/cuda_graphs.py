"""CUDA graphs of a script: what is captured runs as if it were not, and the report says what that leaves out.

A graph keeps the memory of all that it has captured in a pool of its own, which nothing else may use (PyTorch's notes
on CUDA semantics), beside what ran before it in the common pool. Most scripts capture after a few plain steps, when the
script was left already: so its code is looked at too.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from oomproof.trace.user_code import is_users

UNSEEN = "CUDA graphs keep what they captured in a pool of their own, beside the common one: that is not counted"

_NAMES = re.compile(r"\bCUDAGraph\b|\bcuda\.graph\(|\bmake_graphed_callables\b")


class UnplayedGraph:
    """Stands for ``torch.cuda.CUDAGraph``. Nothing is kept, so there is nothing to play again."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def pool(self) -> tuple[int, int]:
        return 0, 0

    def _do_nothing(self, *_: Any, **__: Any) -> None:
        pass

    capture_begin = capture_end = replay = reset = enable_debug_mode = debug_dump = _do_nothing


def mentions_graphs() -> bool:
    """Whether the code of the script, or of a module of its author's, has a name of theirs in it."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return any(_NAMES.search("".join(linecache.getlines(file))) for file in files if file and is_users(file))


@contextmanager
def graphs_left_out(say: Callable[[str], None]) -> Iterator[None]:
    """``say`` is given UNSEEN once something would have been captured."""

    class Capture:
        def __init__(self, *_: Any, **__: Any) -> None:
            say(UNSEEN)

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: Any) -> None:
            pass

    def leave_callables(callables: Any, *_: Any, **__: Any) -> Any:
        say(UNSEEN)
        return callables

    stand_ins = {"CUDAGraph": UnplayedGraph, "graph": Capture, "make_graphed_callables": leave_callables}
    with ExitStack() as stack:
        for name, value in {**stand_ins, "graph_pool_handle": lambda: (0, 0)}.items():
            stack.enter_context(patch.object(torch.cuda, name, value, create=True))
        yield
