"""Follows a training script: everything that it does on its GPU becomes a Timeline.

    with following(card, finish=send) as session:
        run(script)                          # send(timeline) is called after its second step, and does not return

The script's own process is given up to it: what is put in place stays until the process ends.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch

from oomproof.frameworks.torch import half_on_cpu
from oomproof.memory.about import About
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Timeline
from oomproof.trace.request import Progress, be_silent
from oomproof.trace.torch.around.uncompiled import without_compiling
from oomproof.trace.torch.around.without_dynamo import without_dynamo
from oomproof.trace.torch.gpu.dialect import Dialect, dialect_in_force
from oomproof.trace.torch.owner_tags import find_matchers, find_per_box
from oomproof.trace.torch.session.around_updates import AroundUpdates
from oomproof.trace.torch.session.card import Card, card_in_place
from oomproof.trace.torch.session.cuda_graphs import UNSEEN, graphs_left_out, mentions_graphs
from oomproof.trace.torch.session.devices import Devices
from oomproof.trace.torch.session.loading import Loaders
from oomproof.trace.torch.session.own_gpu import OwnGpu
from oomproof.trace.torch.session.ranks import OtherRanks
from oomproof.trace.torch.session.spots import describe_spot
from oomproof.trace.torch.session.steps import Steps
from oomproof.trace.torch.session.tensors import tensors_seen_on_gpu
from oomproof.trace.torch.session.unseen import describe_sharing, describe_unseen
from oomproof.trace.torch.session.weights import weights_followed
from oomproof.trace.torch.trace_step import count_batchnorms
from oomproof.trace.torch.tracer import Tracer


class Session:
    """What was seen of a script so far."""

    def __init__(
        self,
        finish: Callable[[Timeline], None],
        *,
        dialect: Dialect,
        validate: bool,
        say: Progress,
        ranks: int,
        batches: int | None,
    ) -> None:
        self.dialect: Dialect = dialect
        self.tracer = Tracer()
        self.tracer.ledger.attentive = True
        self.own_gpu = OwnGpu()
        self.devices = Devices(self.tracer)
        self.notes: list[str] = []
        self.compiled: list[str] = []
        """notes on what torch.compile was asked to compile"""
        self.left_out: dict[str, None] = {}
        """what the script was seen to do and was not followed, each once"""
        self.loaders = Loaders(batches)
        self.ranks = OtherRanks(ranks, self.own_gpu)
        self._finish = finish
        self.steps = Steps(self.tracer, self._end, say, validate)
        self.around_updates = AroundUpdates()

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _end(self) -> None:
        self._finish(self.build())

    def build(self) -> Timeline:
        """The Timeline of what was seen."""
        steps, ledger = self.steps, self.tracer.ledger
        if steps.only_once:
            self.note(
                "gradients are added up over more batches than an epoch has: one update was seen, and backward passes "
                "after it, up to the first validation"
            )
        if mentions_graphs():
            self.left_out.setdefault(UNSEEN)
        steps.mark_gradients()
        steps.mark_averages()
        timeline = ledger.build()
        model = steps.models[0] if steps.models else torch.nn.Identity()
        about = About(
            framework=f"torch {torch.__version__}",
            dialect=self.dialect,
            threads=torch.get_num_threads(),
            half_on_cpu=self.dialect == "cuda" or half_on_cpu(),
            settings=Settings(self.runtime()),
            validated=steps.validated,
            notes=(*self.notes, *self.compiled),
            values_asked=dict(self.tracer.demands),
            batchnorms=sum(map(count_batchnorms, steps.models)),
            model=type(model).__name__,
            optimizer=next((type(each).__name__ for each in steps.optimizers), ""),
            per_box=find_per_box(timeline),
            matchers=find_matchers(timeline, type(model).__name__),
            batches_seen=self.loaders.describe() or "its first steps; a later batch may be larger",
            unseen=(*describe_sharing(self.ranks.count, self.own_gpu), *describe_unseen(steps), *self.left_out),
            details={"steps": steps.count(), "model_at": self._model_at(), "update_at": self._update_at()},
        )
        return replace(timeline, about=about)

    def _model_at(self) -> dict[str, Any] | None:
        """Where the script's code has a name for its model, before it trains."""
        models, spots = self.steps.models, self.steps.spots
        if len(models) != 1:  # of several, which holds the memory is for their author to say
            return None
        return next(filter(None, (describe_spot(spot, models[0]) for spot in spots)), None)

    def _update_at(self) -> dict[str, Any] | None:
        """Where the script makes its optimizer, if its updates could be of several batches as well as of one."""
        steps, spots = self.steps, self.steps.spots
        several = self.tracer.ledger.backwards > steps.count()  # gradients are added up, or differ from loss to loss
        if self.around_updates.seen or several or len(steps.taken) != 1 or len(spots) != 1 or len(steps.models) != 1:
            return None
        return {"file": spots[0].file, "line": spots[0].line}

    def runtime(self) -> dict[str, Any]:
        """How the script runs, as far as it can be seen."""
        options = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") + os.environ.get("PYTORCH_ALLOC_CONF", "")
        return {
            "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
            "expandable_segments": "expandable_segments:true" in options.lower().replace(" ", ""),
            **self.loaders.settings(),
            **self.ranks.describe(),
        }


@contextmanager
def session_opened(
    card: Card,
    finish: Callable[[Timeline], None],
    *,
    ranks: int = 1,
    dialect: Dialect = "cuda",
    validate: bool = False,
    batches: int | None = None,
    progress: Progress = be_silent,
) -> Iterator[Session]:
    """``ranks``: processes that a launcher has started. ``batches``: how many of a loader are looked at for the largest
    (look_ahead.py); None: a few."""
    with ExitStack() as stack:
        left_out: dict[str, None] = {}
        compiled = stack.enter_context(without_compiling(lambda mode: _note_graphs(mode, left_out)))
        stack.enter_context(without_dynamo())
        stack.enter_context(dialect_in_force(dialect))
        session = Session(finish, dialect=dialect, validate=validate, say=progress, ranks=ranks, batches=batches)
        session.compiled, session.left_out = compiled, left_out
        stack.enter_context(
            session.steps.hooks_installed()
        )  # before the ledger's own hooks: models are named when they run
        stack.enter_context(session.tracer.in_place())
        stack.enter_context(card_in_place(card, session.tracer.ledger.live))
        stack.enter_context(_limit_watched(card, session.left_out))
        stack.enter_context(session.own_gpu.choices_watched())
        stack.enter_context(graphs_left_out(session.left_out.setdefault))
        stack.enter_context(tensors_seen_on_gpu(session.devices, dialect))
        stack.enter_context(weights_followed(session.note))
        stack.enter_context(session.ranks.alone())
        stack.enter_context(session.around_updates.updates_watched(session.steps.count))
        stack.enter_context(session.loaders.loaders_watched(session.steps.before_batch, session.steps.count))
        stack.enter_context(patch.object(torch, "inference_mode", _no_grad))
        stack.enter_context(patch.object(torch.Tensor, "pin_memory", lambda self, *_, **__: self))
        stack.enter_context(patch.object(torch.Tensor, "is_pinned", lambda self, *_, **__: True))
        stack.enter_context(
            patch.object(threading.Thread, "start", _make_start(threading.Thread.start, session.tracer))
        )
        stack.enter_context(session.devices)
        yield session


def _limit_watched(card: Card, left_out: dict[str, None]) -> AbstractContextManager[Any]:
    """A part of the card may be all that a script lets itself have."""

    def set_fraction(fraction: float, device: Any = None) -> None:
        if fraction < 1:
            room = f"{math.floor(fraction * card.total / 2**30 * 100) / 100:g}GiB"
            limit = f"torch.cuda.set_per_process_memory_fraction({fraction}) leaves it {room}"
            left_out.setdefault(f"{limit}: give --on {room}")

    return patch.object(torch.cuda, "set_per_process_memory_fraction", set_fraction)


def _note_graphs(mode: Any, left_out: dict[str, None]) -> None:
    if mode in ("reduce-overhead", "max-autotune"):
        left_out.setdefault(f"torch.compile(mode={mode!r}): {UNSEEN}")


def _no_grad(mode: Any = True) -> Any:
    """torch.inference_mode: views of fake tensors lose their place in the storage there (torch 2.14)."""
    if callable(mode):
        return torch.no_grad(mode)
    return torch.no_grad() if mode else nullcontext()


def _make_start(start: Callable[[Any], None], tracer: Tracer) -> Callable[[Any], None]:
    """Modes belong to the thread that entered them: each thread gets one of its own."""

    def start_thread(thread: threading.Thread) -> None:
        run = thread.run

        def run_in_mode() -> None:
            with Devices(tracer):
                run()

        thread.run = run_in_mode  # type: ignore[method-assign]  # of this one thread
        start(thread)

    return start_thread
