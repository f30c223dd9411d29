"""Sessions of TensorFlow 1, in which a script would train for real: they are not followed, and the line is told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from oomproof.errors import JobError
from oomproof.trace.tensorflow.roles import GRADIENT
from oomproof.trace.user_code import user_line_now

_UPDATE = re.compile(r"^(?:Resource)?(?:Sparse)?Apply[A-Z]")
"""kernels of TensorFlow's optimizers"""


def refuse_training_in_sessions(tf: Any) -> None:
    """For the rest of the process; sessions that only compute go on as they are."""
    for kind in (tf.compat.v1.Session, tf.compat.v1.InteractiveSession):
        patch.object(kind, "run", _make_watched(tf, kind.run)).start()


def _make_watched(tf: Any, run: Any) -> Any:
    harmless: set[tuple[int, tuple[str, ...]]] = set()

    def run_watched(session: Any, fetches: Any, *args: Any, **kwargs: Any) -> Any:
        operations = []
        for each in tf.nest.flatten(fetches, expand_composites=True):
            with suppress(TypeError, ValueError, KeyError):  # what a graph does not have, the session refuses itself
                operations.append(_operation_of(session.graph, each))
        key = id(session.graph), tuple(sorted(each.name for each in operations))
        if key not in harmless:
            if _trains(list(_before(operations))):
                raise JobError(
                    "the script trains in a session of TensorFlow 1, which is not followed (at "
                    f"{user_line_now()}). Its pipeline.config, if it has one, is a job by itself; otherwise put the "
                    "step into a function under @tf.function, or see docs/jobs.md for a job of your own"
                )
            harmless.add(key)
        return run(session, fetches, *args, **kwargs)

    return run_watched


def _trains(operations: list[Any]) -> bool:
    """By an optimizer's kernel, or by hand: something is assigned, and gradients are taken for it."""
    if any(_UPDATE.search(each.type) for each in operations):
        return True
    assigns = any(each.type.startswith("Assign") for each in operations)
    return assigns and any(GRADIENT.search(each.name) for each in operations)


def _operation_of(graph: Any, fetched: Any) -> Any:
    found = graph.as_graph_element(fetched, allow_tensor=True, allow_operation=True)
    return getattr(found, "op", found)


def _before(operations: list[Any]) -> Iterator[Any]:
    """These operations, and all that they wait for."""
    waiting, seen = list(operations), set[str]()
    while waiting:
        each = waiting.pop()
        if each.name not in seen:
            seen.add(each.name)
            yield each
            waiting += [tensor.op for tensor in each.inputs]
            waiting += each.control_inputs
