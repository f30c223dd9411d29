"""All that oomproof uses of Lightning beyond its documented interface: the closure of automatic optimisation, in which
a batch goes forward and backward (lightning/pytorch/loops/optimization/automatic.py; tried with 2.6).

Nothing here imports Lightning: the trainer brings it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from oomproof.frameworks.versions import LIGHTNING

_MAKE = "_make_closure"


class LightningBatch:
    """One batch on its way through automatic optimisation."""

    def __init__(self, loop: Any, given: Mapping[str, Any], optimizer: Any, place: int) -> None:
        self._loop, self._given = loop, given
        self._back = loop._make_backward_fn(optimizer)
        self._zero = loop._make_zero_grad_fn(place, optimizer)
        self.extra: dict[str, Any] = {}

    @property
    def data(self) -> Any:
        return self._given["batch"]

    def drop_gradients(self) -> None:
        """Before the first batch of an update, with the hooks that Lightning has there."""
        if self._zero is not None:
            self._zero()

    def forward(self, part: Any) -> Any:
        """The loss of ``training_step``, divided by the batches of an update; None where it returns None."""
        found = self._loop._training_step({**self._given, "batch": part})
        self.extra = found.extra
        return found.closure_loss

    def backward(self, loss: Any) -> None:
        if self._back is not None:
            self._back(loss)


def replace_pass(trainer: Any, run: Callable[[LightningBatch], Any]) -> None:
    """From now on ``run(batch)`` goes forward and backward and returns the loss, without a graph."""
    loop = trainer.fit_loop.epoch_loop.automatic_optimization
    LIGHTNING.check(*((loop, name) for name in (_MAKE, "_training_step", "_make_backward_fn", "_make_zero_grad_fn")))
    plain = getattr(loop, _MAKE)

    def make(given: Mapping[str, Any], optimizer: Any, place: int) -> Any:
        usual = plain(given, optimizer, place)
        if "batch" not in given:  # training_step(dataloader_iter) takes its batches itself
            return usual

        def whole() -> Any:
            batch = LightningBatch(loop, given, optimizer, place)
            loss = run(batch)
            return loop.output_result_cls(loss, extra=batch.extra)

        return type(usual)(step_fn=whole)

    setattr(loop, _MAKE, make)


def restore_pass(trainer: Any) -> None:
    trainer.fit_loop.epoch_loop.automatic_optimization.__dict__.pop(_MAKE, None)


def run_inside(strategy: Any) -> Any:
    """From now on ``training_step`` runs the module itself. What it was inside of, as DistributedDataParallel, is
    returned: ``strategy.model`` must be that again at the end."""
    wrapped = strategy.model
    strategy.model = strategy.lightning_module
    return wrapped
