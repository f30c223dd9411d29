"""``trainer.register_hooks([GuardHook()])``: Detectron2's own training loop, guarded from ``trainer.train()`` on."""

from __future__ import annotations

import weakref
from typing import Any

from detectron2.engine import HookBase

from oomproof.changes.detectron2.accumulating import simple_trainer
from oomproof.changes.detectron2.trainer import refuse_own_step
from oomproof.run.guard.detectron2_step import guard_of, guarded_step


class GuardHook(HookBase):  # type: ignore[misc]  # Detectron2 has no types
    """Takes what ``oomproof.Guard`` takes besides model, optimizer and scaler."""

    def __init__(self, plan: Any = None, **options: Any) -> None:
        self.plan, self.options = plan, options

    def before_train(self) -> None:
        refuse_own_step(self.trainer, "GuardHook", "oomproof.run.detectron2.guarded_step(self, guard)")
        inner = simple_trainer(self.trainer)
        guard = guard_of(inner, self.plan, **self.options)
        known = inner if isinstance(inner, weakref.ProxyTypes) else weakref.proxy(inner)
        inner.run_step = lambda: guarded_step(known, guard)
