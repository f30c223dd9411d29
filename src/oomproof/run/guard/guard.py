"""A training step that goes on when memory runs out.

guard = oomproof.Guard(model, optimizer)
for batch in loader:                                    # batches of the size the training always had
    total = guard.step(batch, lambda model, batch: model(*batch))
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import torch

from oomproof.changes.torch.micro_batches import move_batch, part_sizes, split, splittable_images, why_not_split
from oomproof.changes.torch.passes import (
    Loss,
    Passes,
    check_training,
    in_channels_last,
    prepare_model,
    unwrap_model,
)
from oomproof.changes.torch.step import as_mapping, largest_micro_batch
from oomproof.changes.torch.training import training_from
from oomproof.errors import CannotDo, OutOfMemory
from oomproof.run.guard import ranks as meeting
from oomproof.run.guard.before_step import BeforeStep
from oomproof.run.guard.earlier_gradients import set_aside
from oomproof.run.guard.evaluation import evaluate_in_parts
from oomproof.run.guard.failures import CaughtFailure, attempt, free_memory, keep_to_budget
from oomproof.run.guard.given_batch import WRITTEN, GivenBatch
from oomproof.run.guard.loading import load_with_fewer
from oomproof.run.guard.loss_shares import LossShares
from oomproof.run.guard.protected_update import (
    INTACT,
    NOT_INTACT,
    UpdateFailed,
    list_updated_tensors,
    protect_update,
    refuse_closures,
    versions_of,
)
from oomproof.run.guard.rungs import MAY_BE_ALLOWED, climb, rungs_for
from oomproof.run.guard.sizes import FIRST_PATIENCE, Sizes
from oomproof.run.guard.split_remarks import find_split_remarks, has_batch_statistics
from oomproof.run.guard.unfinished_update import update_average

LOG = logging.getLogger("oomproof.guard")
MEANS = "the update is the same where the loss is a mean over images"
Run = Callable[..., torch.Tensor]
"""run(part, share, last=...): forward and backward of one micro-batch; its part of the loss"""


class Guard:
    """``guard.step(batch, loss)`` is one optimizer step on one batch, in as many micro-batches as fit.

    When memory runs out, the step begins again from the state it began with (random numbers, buffers, no gradients), in
    smaller micro-batches whose gradients add up to the batch's. Every change is a line of the log ``oomproof.guard``.
    ``plan`` is what ``Step`` takes as settings. ``weight(batch)`` says what losses are divided by, where they are not
    means over images; for torchvision's detectors that is known. Where one image does not fit, blocks are computed
    again in backward, and what ``allow`` names is tried (``precision``: bf16); then OutOfMemory is raised.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        plan: Any = None,
        scaler: torch.amp.GradScaler | None = None,
        *,
        weight: Callable[[Any], float] | None = None,
        allow: Collection[str] = (),
        floor: int = 1,
        patience: int = FIRST_PATIENCE,
    ) -> None:
        settings = as_mapping(plan)
        training = check_training(training_from(settings))
        if training.gradients == "at_once":
            raise CannotDo(
                "gradients=at_once cannot be taken back when a step fails in its middle: plan with "
                "`--fix gradients=kept`, or train with oomproof.Step, which does not recover"
            )
        refuse_closures(optimizer)
        prepare_model(model, training)
        self._passes = passes = Passes(model, optimizer, None, training)
        passes.scaler = scaler if scaler is not None else passes.scaler
        self._ranks = meeting.ranks_of(model, passes.device)
        passes.model = unwrap_model(model)
        if passes.scaler is not None:
            passes.scaler.scale(torch.zeros((), device=passes.device))  # it makes its tensors when first used
        keep_to_budget(passes.device)
        self.steps = self.recoveries = 0
        self.sizes = Sizes(largest_micro_batch(settings), floor, patience)
        self.evaluation_sizes = Sizes(patience=patience)
        """of validation, which takes less memory an image"""
        self._run: Run = passes.backward
        self._rungs = rungs_for(passes, allow)
        self._protected = not self._ranks.together and protect_update(
            optimizer, passes.device, training.optimizer_state
        )
        self._before = BeforeStep(passes.model, passes.device)
        self._shares = LossShares(passes, self._before, weight, self._say_once)
        self._largest_part = 0
        self.kept = "the update is the same" if self._shares.divisor_is_known else MEANS
        """what the log says of a batch that is split"""
        self._said: set[str] = set()
        self._given = GivenBatch(())

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        return self._passes.scaler

    @property
    def device(self) -> torch.device:
        return self._passes.device

    @property
    def average(self) -> Any:
        """The averaged model, with ``ema``."""
        return self._passes.average

    def step(self, batch: Any, loss: Loss, before_update: Callable[[], Any] | None = None) -> torch.Tensor:
        """Trains on one batch and returns its loss, without a graph. ``before_update`` finds the whole batch's
        gradients, unscaled: to clip them, for instance."""
        self._given = GivenBatch(batch)
        self._passes.loss = loss
        self._run = self._passes.backward
        self._ranks.share_buffers()
        self._note_start()
        with set_aside(() if self._ranks.together else self._list_others()):
            found = self._gradients(batch)
            self._ranks.exchange()
        self._do_update(before_update)
        self.steps += 1
        self._note_size(batch)
        return found

    def backward(self, batch: Any, loss: Loss, run: Run | None = None) -> torch.Tensor:
        """Adds one batch's gradients to those that are there, and leaves the update to the caller.

        For loops that accumulate over batches, and for frameworks that update by themselves. ``run(part, share, last)``
        is forward and backward of a micro-batch whose loss counts for ``share``; None: ``loss`` with its backward.
        """
        if self._ranks.together:
            raise CannotDo("Guard.backward cannot set aside the gradients of fully_shard; use guard.step(batch, loss)")
        self._given = GivenBatch(batch)
        self._passes.loss = loss
        self._run = run or self._passes.backward
        self._ranks.share_buffers()
        self._note_start()
        with set_aside([*self._list_updated(), *self._list_others()]):
            found = self._gradients(batch)
            self._ranks.exchange()
        self._note_size(batch)
        return found

    def evaluate(self, batch: Any, run: Callable[[torch.nn.Module, Any], Any]) -> list[Any]:
        """``run(model, part)`` without gradients, for as large parts of the batch as fit; a list of what it gives, in
        order. Each process decides for itself, so ``run`` must not talk to others."""
        model = self._passes.model
        return evaluate_in_parts(
            lambda part: run(model, part), batch, self.evaluation_sizes, self._passes.device, self._tell
        )

    def load(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches. Where host memory runs out in its workers, the rest comes from half as many."""
        return load_with_fewer(loader, self._tell)

    def _list_updated(self) -> list[torch.nn.Parameter]:
        """What the optimizer updates; a loss may have parameters of its own."""
        return [p for group in self._passes.optimizer.param_groups for p in group["params"]]

    def _list_others(self) -> list[torch.nn.Parameter]:
        """The model's parameters that another optimizer updates, or none."""
        own = set(map(id, self._list_updated()))
        return [p for p in self._passes.model.parameters() if id(p) not in own]

    def _note_start(self) -> None:
        _, failure = attempt("copying buffers before the step", self._before.note)
        if failure is not None:
            free_memory(self._passes.device)
            _, failure = attempt("copying buffers before the step", self._before.note)
        if failure is not None:
            self._stop(failure)

    def _note_size(self, batch: Any) -> None:
        images = splittable_images(batch)
        larger = self.sizes.note_success(images) if images else None
        if larger is not None:
            LOG.info(f"step {self.steps}: trying micro-batches of {_images(larger)} again")

    # -- forward and backward ------------------------------------------------------------------------------------------

    def _gradients(self, batch: Any) -> torch.Tensor:
        """The loss of the batch; its gradients are in place. All processes leave this with theirs, or none does."""
        while True:
            self._ranks.gather()
            found, fared, failure = self._own_gradients(batch)
            worst, self.sizes.largest = self._ranks.meet(fared, self.sizes.largest)
            if worst == meeting.GOOD:
                return found
            self._begin_again()
            if worst == meeting.RETRY:
                continue
            # Every process takes the same one, whatever each has done on its own account.
            self._rungs = [rung for rung in self._rungs if rung.setting in MAY_BE_ALLOWED]
            rung = climb(self._passes, self._rungs) if worst == meeting.CLIMB else None
            if rung is None:
                self._stop(failure)
            self._tell(failure, f"from now on {rung.says}")

    def _own_gradients(self, batch: Any) -> tuple[Any, int, CaughtFailure | None]:
        """The loss, how it went, and what went wrong: tried until it works or there is nothing left to try."""
        while True:
            found, failure = attempt("forward or backward", lambda: self._pass(batch))
            if failure is None:
                return found, meeting.GOOD, None
            failure = self._find_why_not_again(failure)
            self._begin_again()
            self.recoveries += 1
            if failure.besides:
                return None, meeting.STOP, failure
            if not self._make_smaller(failure, self._largest_part):
                failure = replace(failure, whole=why_not_split(batch))
                return None, meeting.CLIMB if self._rungs else meeting.STOP, failure
            if self._ranks.together:
                return None, meeting.RETRY, failure

    def _find_why_not_again(self, failure: CaughtFailure) -> CaughtFailure:
        """With what the failed pass has left that cannot be taken back, if there is any."""
        if not self._ranks.together and self._before.parameters_written:  # shards are other tensors while gathered
            besides = "parameters were written to before the update (an optimizer in a hook of backward?)"
            return replace(failure, besides=besides, intact=False)
        return replace(failure, besides=WRITTEN) if self._given.was_written else failure

    def _make_smaller(self, failure: CaughtFailure, images: int) -> bool:
        """Whether there is another way to try the step, which has now been chosen."""
        coupled = has_batch_statistics(self._passes.model)
        if coupled and self._climb_alone(failure):  # the same results, which a split batch would not have
            return True
        if images and self.sizes.note_failure(images):
            now = self.sizes.largest
            assert now is not None
            kept = "batch normalisation sees micro-batches, so results differ" if coupled else self.kept
            self._tell(failure, f"going on with micro-batches of {_images(now)} instead of {images}; {kept}")
            return True
        return self._climb_alone(failure)

    def _climb_alone(self, failure: CaughtFailure) -> bool:
        """Takes the next rung that leaves results as they are, so no other process need know."""
        own = [rung for rung in self._rungs if rung.setting not in MAY_BE_ALLOWED]
        rung = climb(self._passes, own)
        self._rungs = own + [rung for rung in self._rungs if rung.setting in MAY_BE_ALLOWED]
        if rung is not None:
            self._tell(failure, f"from now on {rung.says}")
        return rung is not None

    def _pass(self, batch: Any) -> torch.Tensor:
        """All micro-batches of the batch."""
        passes = self._passes
        images = splittable_images(batch)
        parts = split(batch, self.sizes.count(images)) if images else [batch]
        self._largest_part = part_sizes(images, len(parts))[0] if images else 0
        shares, drawing = self._shares.of(batch, parts)
        result = torch.zeros((), device=passes.device)
        passes.begin()
        with drawing:
            for place, (part, share) in enumerate(zip(parts, shares, strict=True), 1):
                result += self._run(self._on_device(part), share, last=place == len(parts))
        if len(parts) > 1:
            for remark in find_split_remarks(passes.model, self._before):
                self._say_once(remark)
        return result

    def _on_device(self, part: Any) -> Any:
        here = move_batch(part, self._passes.device)
        return in_channels_last(here) if self._passes.training.channels_last else here

    def _begin_again(self) -> None:
        self._ranks.forget()
        self._passes.optimizer.zero_grad(set_to_none=True)
        if not self._ranks.together:
            for parameter in self._passes.model.parameters():
                parameter.grad = None
        free_memory(self._passes.device)
        self._before.restore()

    # -- the update ----------------------------------------------------------------------------------------------------

    def _do_update(self, before_update: Callable[[], Any] | None) -> None:
        """Stage by stage: one that fails is done again, those before it are not."""
        passes = self._passes
        scaler, optimizer, average = passes.scaler, passes.optimizer, passes.average
        # Whatever changes gradients in place must not be done to some of them twice.
        gradients = [p.grad for p in self._list_updated() if p.grad is not None]
        if scaler is not None:
            self._twice(lambda: scaler.unscale_(optimizer), gradients)
        if before_update is not None:
            self._before.note_random_numbers()
            self._twice(before_update, gradients, again=self._before.restore_random_numbers)
        updated = list_updated_tensors(optimizer) if not self._protected else self._list_updated()
        self._twice(lambda: scaler.step(optimizer) if scaler is not None else optimizer.step(), gradients, updated)
        if scaler is not None:
            self._twice(scaler.update)
        if average is not None:
            failure = update_average(average, passes.model, passes.device)
            if failure is not None:
                self._stop(failure, intact=False)

    def _twice(
        self,
        action: Callable[[], Any],
        gradients: Sequence[torch.Tensor] = (),
        updated: Sequence[torch.Tensor] = (),
        again: Callable[[], Any] | None = None,
    ) -> None:
        """Once more after a failure, unless it has written to some of its tensors already. ``again`` comes before."""
        before, parameters = versions_of(gradients), versions_of(updated)
        try:
            _, failure = attempt("the update", action)
            if failure is None:
                return
            self.recoveries += 1
            free_memory(self._passes.device)
            if before != versions_of(gradients) or parameters != versions_of(updated):
                raise UpdateFailed(failure, intact=parameters == versions_of(updated))
            self._tell(failure, "trying that again with what was freed")
            if again is not None:
                again()
            _, failure = attempt("the update", action)
            if failure is not None:
                raise UpdateFailed(failure, intact=parameters == versions_of(updated))
        except UpdateFailed as error:
            self._stop(error.failure, error.intact)

    # -- words ---------------------------------------------------------------------------------------------------------

    def _tell(self, failure: CaughtFailure | None, what: str) -> None:
        asked = f" ({failure.asked})" if failure is not None and failure.asked else ""
        where = failure.doing if failure is not None else "another process"
        LOG.warning(f"step {self.steps + 1}: out of memory in {where}{asked}: {what}")

    def _say_once(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            LOG.warning(what)

    def _stop(self, failure: CaughtFailure | None, intact: bool = True) -> NoReturn:
        from oomproof.run.guard.diagnosis import describe_end

        intact = intact and (failure is None or failure.intact)
        raise OutOfMemory(describe_end(self.steps + 1, failure, INTACT if intact else NOT_INTACT))


def _images(count: int) -> str:
    return f"{count} image{'s' * (count != 1)}"
