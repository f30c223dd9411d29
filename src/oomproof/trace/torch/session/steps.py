"""Where a script is in its training: which modules are its models, when a step begins, when enough was seen.

Nothing is asked of the script. A model is a module that is called from outside of any other and has parameters on the
GPU. A step is over when its optimizer has stepped and something new begins: the next batch is asked for, a model is
called, or an optimizer steps again. What comes between (an average of weights, dropped gradients) belongs to it.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from oomproof.errors import JobError
from oomproof.frameworks.torch import FakeTensor, own_parameters
from oomproof.trace.torch.lbfgs_history import fill_history
from oomproof.trace.torch.session.spots import Spot, see_spot
from oomproof.trace.torch.tracer import Tracer
from oomproof.trace.user_code import user_line_now

ENOUGH = 2
"""steps of every optimizer"""
MOST = 12
"""steps of one optimizer, after which others that have not stepped are not waited for"""
AVERAGE = "(ema)"


class Steps:
    """``finish`` is called when enough was seen, and does not return."""

    def __init__(self, tracer: Tracer, finish: Callable[[], None], say: Callable[[str], None], validate: bool) -> None:
        self.tracer, self._finish, self._say, self._validate = tracer, finish, say, validate
        self.taken: Counter[int] = Counter()
        """steps by optimizer"""
        self.optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self.spots: list[Spot] = []
        """where optimizers were made"""
        self._models: list[weakref.ref[torch.nn.Module]] = []
        self.validated = False
        self.backwards = 0
        """backward passes of a script that has no optimizer of PyTorch"""
        self.only_once = False
        """the script was left before its second update"""
        self._backwards_at_update = 0
        self._owners: dict[int, str] = {}
        self._between = True

    @property
    def models(self) -> list[torch.nn.Module]:
        """Those that are still there: a copy on which a script only tries something is freed, as without us."""
        return [model for each in self._models if (model := each()) is not None]

    # -- what happens ------------------------------------------------------------------------------------------

    def before_model(self, module: torch.nn.Module) -> None:
        if self.tracer.ledger.modules or not _on_gpu(module):
            return
        training = torch.is_grad_enabled()
        if self.is_enough() and (training or not self._validate):
            self._finish()
        if not training and not self._validate and self._accumulates():
            self.only_once = True
            self._finish()
        if module not in self.models:
            self._meet(module)
        ledger = self.tracer.ledger
        ledger.validating = not training
        if not training:
            self.validated = self.validated or self.count() > 0
        elif self._between:
            self._between = False
            if self.count() == 0:
                gc.collect()
                gc.disable()  # a collection in the middle of a step would be luck (trace_step.py)
            self._say(f"tracing step {self.count() + 1}")
            ledger.start_step()

    def before_batch(self) -> None:
        self.tracer.ledger.validating = False
        if self.is_enough() and not self._validate:
            self._finish()

    def before_update(self, optimizer: torch.optim.Optimizer) -> None:
        if not any(isinstance(each, FakeTensor) for each in _parameters(optimizer)):
            raise JobError(f"{_ON_CPU} (at {user_line_now()})")
        if self.is_enough() and self.taken[id(optimizer)] >= ENOUGH:
            self._finish()
        self.mark_gradients()

    def after_update(self, optimizer: torch.optim.Optimizer) -> None:
        self.taken[id(optimizer)] += 1
        self._backwards_at_update = self.tracer.ledger.backwards
        fill_history(optimizer)
        self.tracer.ledger.mark_state(optimizer, self._owners)
        self._between = True

    def count(self) -> int:
        """Steps that were seen."""
        return max(self.taken.values(), default=self.backwards)

    def is_enough(self) -> bool:
        if self._validate and not self.validated:
            return False
        self._count_backwards()
        if not self.taken:
            return not self.optimizers and self.backwards >= ENOUGH
        if max(self.taken.values()) >= MOST:
            return True
        if min(self.taken.values()) < ENOUGH:
            return False
        return self._has_trained_all()

    def _accumulates(self) -> bool:
        """Whether every optimizer has stepped and a backward pass came after it: gradients are added up over more
        batches than an epoch has (Ultralytics, up to 64 images), and the second update may be epochs away."""
        since = self.tracer.ledger.backwards - self._backwards_at_update
        return bool(self.taken) and since > 0 and self._has_trained_all()

    def _has_trained_all(self) -> bool:
        return not any(map(self.is_waiting, self.optimizers))

    def is_waiting(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether it has parameters that none has updated yet. One that was made and replaced by another has nothing of
        its own to wait for."""
        trained = {id(p) for each in self.optimizers if self.taken[id(each)] for p in _parameters(each)}
        return any(id(p) not in trained for p in _parameters(optimizer) if isinstance(p, FakeTensor))

    def _count_backwards(self) -> None:
        now = self.tracer.ledger.backwards
        if not self.optimizers:
            self.backwards = now

    # -- what belongs to whom ----------------------------------------------------------------------------------

    def _meet(self, model: torch.nn.Module) -> None:
        """A model is called for the first time: its parts get their names."""
        ledger = self.tracer.ledger
        if self._models:
            gc.collect()  # modules are often in cycles
        prefix = f"{type(model).__name__}." if self.models else ""
        self._models.append(weakref.ref(model))
        ledger.name_modules(model, prefix=prefix)
        ledger.mark_model(model, prefix=prefix)
        for path, module in model.named_modules():
            for parameter in own_parameters(module).values():
                if isinstance(parameter, FakeTensor):
                    self.tracer.contents.call_weight(parameter)
                    self._owners[id(parameter)] = f"{prefix}{path}" or type(module).__name__

    def mark_gradients(self) -> None:
        for optimizer in self.optimizers:
            for parameter in _parameters(optimizer):
                if isinstance(parameter.grad, FakeTensor):
                    self.tracer.ledger.mark(parameter.grad, "gradient", self._owners.get(id(parameter), "(step)"))

    def mark_averages(self) -> None:
        """Modules on the GPU that are never called while it trains: averages of the weights, teachers."""
        known = {id(module) for model in self.models for module in model.modules()}
        for each in gc.get_objects():
            if issubclass(type(each), torch.nn.Module) and id(each) not in known and _on_gpu(each):
                self.tracer.ledger.mark_model(each, AVERAGE)

    # -- how it is seen ----------------------------------------------------------------------------------------

    @contextmanager
    def hooks_installed(self) -> Iterator[None]:
        with ExitStack() as stack:

            def call_before(module: torch.nn.Module, inputs: Any) -> None:
                self.before_model(module)

            def before(optimizer: Any, args: Any, kwargs: Any) -> None:
                self.before_update(optimizer)

            def after(optimizer: Any, args: Any, kwargs: Any) -> None:
                self.after_update(optimizer)

            stack.callback(modules.register_module_forward_pre_hook(call_before).remove)
            stack.callback(optimizers.register_optimizer_step_pre_hook(before).remove)
            stack.callback(optimizers.register_optimizer_step_post_hook(after).remove)
            stack.enter_context(patch.object(torch.optim.Optimizer, "__init__", self._make_noting_init()))
            yield

    def _make_noting_init(self) -> Callable[..., None]:
        make = torch.optim.Optimizer.__init__

        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            make(optimizer, *args, **kwargs)
            self.optimizers.add(optimizer)
            if spot := see_spot():
                self.spots.append(spot)

        return init


_ON_CPU = (
    "the script trains on the CPU: none of the parameters that its optimizer updates is on a GPU. Run it as you would "
    "on a machine with a GPU (its own option for the device), so that it moves its model there"
)


def _on_gpu(module: torch.nn.Module) -> bool:
    return any(isinstance(parameter, FakeTensor) for parameter in module.parameters())


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in getattr(optimizer, "param_groups", ()):
        yield from group["params"]
