"""The training loop: one update after another, until the steps are done or somebody asks it to stop."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oomproof.changes.tf_object_detection.model import Built
from oomproof.changes.tf_object_detection.step import REGULARISATION, TOTAL, DetectionStep
from oomproof.errors import JobError, OutOfMemory
from oomproof.run.tf_object_detection.checkpoints import Checkpoints, State
from oomproof.run.tf_object_detection.progress import ProgressWriter
from oomproof.run.tf_object_detection.request import TrainingRequest

Say = Callable[[str], None]
DOUBLED_AFTER = 2000
"""updates without an overflow after which the loss scale is doubled, as in Keras"""


@dataclass
class TrainingLoop:
    tf: Any
    strategy: Any
    built: Built
    request: TrainingRequest
    state: State
    say: Say

    def __post_init__(self) -> None:
        self._take(self.built.step)

    def _take(self, step: DetectionStep) -> None:
        self.step = step
        self.functions = {
            name: self.tf.function(getattr(step, name), autograph=False)
            for name in ("whole", "begin", "undo", "add", "update", "skip")
        }

    def _run(self, name: str, *args: Any) -> Any:
        if self.strategy.num_replicas_in_sync == 1:
            return self.functions[name](*args)
        return self._distribute(name)(*args)

    def _distribute(self, name: str) -> Any:
        key = f"distributed {name}"
        if key not in self.functions:
            function = getattr(self.step, name)
            self.functions[key] = self.tf.function(lambda *args: self.strategy.run(function, args), autograph=False)
        return self.functions[key]

    def update(self, batches: list[Any]) -> Callable[[], dict[str, float]]:
        """One update with a batch for each GPU; the losses are computed when they are asked for. OutOfMemory: weights
        are as they were."""
        while True:
            try:
                return self._update(batches)
            except Exception as error:
                if not _is_out_of_memory(self.tf, error):
                    raise
                reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            # Outside of the except clause, whose error holds on to frames with tensors in them.
            gc.collect()
            self._cut_finer(reason)

    def _update(self, batches: list[Any]) -> Callable[[], dict[str, float]]:
        step = self.step
        if not step.adds:
            losses = self._run("whole", *self._part(batches, 0, 1))
            return lambda: {name: self._sum(each) for name, each in losses.items()}
        made, fine = self._add_all(batches) if not step.options.half else self._add_in_half(batches)
        divisor, penalty = self._run("update" if fine else "skip")

        def losses_of_step() -> dict[str, float]:
            shares = self.strategy.experimental_local_results(divisor)
            total: dict[str, float] = {}
            for some in made:
                for name, each in some.items():
                    parts = self.strategy.experimental_local_results(each)
                    found = sum(float(part) / float(share) for part, share in zip(parts, shares, strict=True))
                    total[name] = total.get(name, 0.0) + found
            regular = self._sum(penalty)
            if regular:
                total[REGULARISATION] = regular
            return {**total, TOTAL: total[TOTAL] + regular}

        return losses_of_step

    def _add_all(self, batches: list[Any], scale: float = 1.0) -> tuple[list[Any], bool]:
        """The losses of all micro-batches, and whether all gradients are finite."""
        half, pieces = self.step.options.half, self.step.options.accumulate
        self._run("begin")
        made, fine = [], True
        for piece in range(pieces):
            losses, finite = self._run("add", *self._part(batches, piece, pieces), self.tf.constant(scale))
            made.append(losses)
            fine = fine and (not half or self._all(finite))
        return made, fine

    def _add_in_half(self, batches: list[Any]) -> tuple[list[Any], bool]:
        """The loss is scaled so that gradients are within float16. Where they are not, the same step is done again with
        half the scale: no batch is lost while the scale is looked for."""
        state, tf = self.state, self.tf
        first = scale = float(state.scale.numpy())
        made, fine = self._add_all(batches, scale)
        while not fine and scale > 1.0:
            scale /= 2
            made, fine = self._add_all(batches, scale)
        now = int(self.built.counter.numpy()) + 1
        if not fine:
            self.say(f"step {now}: gradients are not finite in float16, and weights stay as they are")
        elif scale < first:
            self.say(f"step {now}: gradients overflow in float16; the loss is scaled by {scale:g} from here on")
        good = int(state.good.numpy()) + 1 if fine and scale == first else 0
        state.scale.assign(scale * 2 if good >= DOUBLED_AFTER else tf.maximum(scale, 1.0))
        state.good.assign(0 if good >= DOUBLED_AFTER else good)
        return made, fine

    def _part(self, batches: list[Any], piece: int, pieces: int) -> Any:
        """A micro-batch for each GPU; only it goes there, the whole batch stays in RAM."""
        tf = self.tf

        def cut(batch: Any) -> Any:
            if pieces == 1:
                return batch
            with tf.device("/CPU:0"):
                size = batch[0]["image"].shape[0] // pieces
                return tf.nest.map_structure(lambda each: each[piece * size : (piece + 1) * size], batch)

        if len(batches) == 1:
            return cut(batches[0])
        cuts = [cut(batch) for batch in batches]
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: cuts[context.replica_id_in_sync_group]
        )

    def _cut_finer(self, reason: str) -> None:
        """More micro-batches, after a step that ran out of memory before any weight was changed."""
        options, tf = self.step.options, self.tf
        now = int(self.built.counter.numpy())
        if self.strategy.num_replicas_in_sync > 1 or not self.request.retry:
            raise OutOfMemory(f"out of memory in step {now + 1}: {reason}")
        if int(self.step.begun.numpy()) > now:
            raise OutOfMemory(
                f"out of memory in step {now + 1}, when its update had begun: start again from the last checkpoint"
            )
        self._run("undo")
        finer = next((n for n in range(options.accumulate + 1, options.images + 1) if options.images % n == 0), None)
        if finer is None:
            raise OutOfMemory(f"out of memory in step {now + 1} with one image at a time: {reason}")
        self.say(
            f"step {now + 1} ran out of memory: it is done again, and all that follow, in {finer} micro-batches of "
            f"{options.images // finer} (before: {options.accumulate})"
        )
        self.functions.clear()
        built = self.built
        self._take(DetectionStep(tf, built.model, built.optimizer, built.counter, replace(options, accumulate=finer)))

    def _sum(self, value: Any) -> float:
        return sum(float(each) for each in self.strategy.experimental_local_results(value))

    def _all(self, value: Any) -> bool:
        return all(bool(each) for each in self.strategy.experimental_local_results(value))


def train(loop: TrainingLoop, batches: Iterator[Any], checkpoints: Checkpoints, folder: Path) -> bool:
    """Whether it came to its end; False: it was asked to stop, and has saved."""
    request, counter, state = loop.request, loop.built.counter, loop.state
    step = saved = int(counter.numpy())
    progress = ProgressWriter(loop.tf, folder, request.steps, request.log_every, step)
    with _stop_signals_noted() as stop:
        try:
            path = checkpoints.resumed or checkpoints.save()  # at the very beginning, as the API does
            while step < request.steps and not stop:
                given = [next(batches) for _ in range(request.gpus)]
                losses = loop.update(given)
                step += 1
                state.records.assign_add(sum(int(batch[0]["image"].shape[0]) for batch in given))
                if progress.is_due(step):
                    loop.say(progress.tell(step, losses(), float(loop.built.learning_rate())))
                if step - saved >= request.save_every:
                    path, saved = checkpoints.save(), step
            if step > saved:
                path = checkpoints.save()
            loop.say(f"saved {path} at step {step}")
        except (OutOfMemory, JobError):
            if step > saved:
                checkpoints.save()  # no weight was changed by the step that failed, or had no data
            raise
        finally:
            progress.close()
        return step >= request.steps


def _is_out_of_memory(tf: Any, error: BaseException | None) -> bool:
    """Where the host's memory is full, TensorFlow fails to put its own error together (seen in 2.21: std::bad_alloc, or
    protobuf's EncodeError): then the one that says so stands behind."""
    while error is not None:
        if isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError)):
            return True
        error = error.__context__
    return False


@contextlib.contextmanager
def _stop_signals_noted() -> Iterator[list[int]]:
    """Filled by Ctrl-C and SIGTERM: the step that runs is finished and saved. The second time they act at once."""
    asked: list[int] = []

    def note(number: int, frame: object) -> None:
        asked.append(number)
        signal.signal(number, signal.SIG_DFL)

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
