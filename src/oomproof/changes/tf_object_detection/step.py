"""One update of the API's model: the gradients of all micro-batches are added up, and applied once.

>>> step = DetectionStep(tf, model, optimizer, counter, StepOptions("ssd", images=8, accumulate=4))     # doctest: +SKIP
>>> step.begin()                                                                               # doctest: +SKIP
>>> for features, labels in micro_batches: step.add(features, labels, tf.constant(1.0))        # doctest: +SKIP
>>> step.update()                                                                              # doctest: +SKIP

With one micro-batch in float32, ``whole`` does all of it in one graph, as the API does. Methods run inside a
tf.function and, with several GPUs, on each of them (Strategy.run). Losses are divided by the number of GPUs and their
gradients summed over them, as the API does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oomproof.changes.tf_object_detection.shares import share_of
from oomproof.frameworks.object_detection import losses_of

TOTAL, REGULARISATION = "Loss/total_loss", "Loss/regularization_loss"
_STATISTICS = ("moving_mean", "moving_variance")


@dataclass(frozen=True)
class StepOptions:
    kind: str
    """of the model: ssd, faster_rcnn, center_net"""
    images: int
    """of a whole batch, on one GPU"""
    accumulate: int = 1
    half: bool = False
    """layers compute in float16, and losses are scaled"""
    gpus: int = 1
    unpad: bool = False
    regularised: bool = True
    clip: float | None = None
    seed: int = 0


class DetectionStep:
    """``model`` has its variables already; ``counter`` is the API's global step."""

    def __init__(self, tf: Any, model: Any, optimizer: Any, counter: Any, options: StepOptions) -> None:
        self.tf, self.model, self.optimizer, self.counter, self.options = tf, model, optimizer, counter, options
        self.share = share_of(tf, options.kind, model)
        self.trained = list(model.trainable_variables)
        self.statistics = [each for each in model.variables if each.name.split(":")[0].endswith(_STATISTICS)]
        self.begun = self._local(counter.value(), "update_begun")
        """the step whose update has begun: what went wrong before left all weights as they were"""
        self.before = [self._local(tf.zeros(each.shape), "statistics_before") for each in self.statistics]
        if self.adds:
            self.sums = [self._local(tf.zeros(each.shape), "gradient_sum") for each in self.trained]
            self.counted, self.pieces = self._local(0.0, "counted"), self._local(0, "pieces")
            self.added = [self._local(tf.zeros(each.shape), "statistics_sum") for each in self.statistics]

    @property
    def adds(self) -> bool:
        """Gradients are added up beside the model, rather than applied where they are made."""
        return self.options.accumulate > 1 or self.options.half

    def whole(self, features: Any, labels: Any) -> dict[str, Any]:
        """A whole batch at once: what ``model_lib_v2.eager_train_step`` does."""
        tf = self.tf
        self._remember()
        with self._draws(0), tf.GradientTape() as tape:
            losses, _ = self._losses(features, labels, self.options.regularised)
            losses = {name: each / self.options.gpus for name, each in losses.items()}
        self._apply(tape.gradient(losses[TOTAL], self.trained))
        return losses

    def begin(self) -> None:
        """Forgets what was added; the statistics of batch normalisation are those before the step."""
        for each in (*self.sums, *self.added, self.counted, self.pieces):
            each.assign(self.tf.zeros_like(each))
        self._remember()

    def undo(self) -> None:
        """After an error in the middle of a step."""
        for before, now in zip(self.before, self.statistics, strict=True):
            now.assign(before)

    def add(self, features: Any, labels: Any, scale: Any) -> tuple[dict[str, Any], Any]:
        """A micro-batch. Its losses are as they count in the whole batch but for ``counted``; and whether all gradients
        are finite."""
        tf, options = self.tf, self.options
        images = features["image"].shape[0]
        with self._draws(self.pieces), tf.GradientTape() as tape:
            losses, unstacked = self._losses(features, labels, regularised=False)
            share = self.share(unstacked, images, options.images)
            counts = tf.stop_gradient(share.own) / (options.images * options.gpus)
            losses = {name: each * counts for name, each in losses.items()}
            scaled = losses[TOTAL] * scale
        found = tape.gradient(scaled, self.trained)
        finite = tf.constant(True)
        for total, gradient in zip(self.sums, found, strict=True):
            if gradient is not None:
                unscaled = tf.convert_to_tensor(gradient) / scale
                finite = tf.logical_and(finite, tf.reduce_all(tf.math.is_finite(unscaled)))
                total.assign_add(unscaled)
        self.counted.assign_add(share.count)
        self.pieces.assign_add(1)
        for added, before, now in zip(self.added, self.before, self.statistics, strict=True):
            added.assign_add(now)
            now.assign(before)
        return losses, finite

    def update(self) -> tuple[Any, Any]:
        """Applies what was added, once. Returns what the losses of ``add`` are to be divided by, and the loss of
        regularisation, which belongs to the weights and not to any micro-batch."""
        tf, divisor = self.tf, self._divisor()
        gradients = [total / divisor for total in self.sums]
        with tf.GradientTape() as tape:
            penalty = self._penalty()
        of_penalty = tape.gradient(penalty, self.trained)
        gradients = [
            each if more is None else each + tf.convert_to_tensor(more)
            for each, more in zip(gradients, of_penalty, strict=True)
        ]
        for added, now in zip(self.added, self.statistics, strict=True):
            now.assign(added / tf.cast(self.pieces, tf.float32))
        self._apply(gradients)
        return divisor, penalty

    def skip(self) -> tuple[Any, Any]:
        """In place of ``update`` where gradients are not finite: weights and statistics stay as they were."""
        self.counter.assign_add(1)
        return self._divisor(), self._penalty()

    def _divisor(self) -> Any:
        return self.tf.maximum(self.counted, 1.0) / self.options.images

    def _penalty(self) -> Any:
        losses = self.model.regularization_losses() if self.options.regularised else ()
        return self.tf.add_n(losses) / self.options.gpus if losses else self.tf.constant(0.0)

    def _remember(self) -> None:
        for before, now in zip(self.before, self.statistics, strict=True):
            before.assign(now)

    def _losses(self, features: Any, labels: Any, regularised: bool) -> tuple[dict[str, Any], Any]:
        return losses_of(
            self.model, features, labels, unpad=self.options.unpad, step=self.counter, regularised=regularised
        )

    def _apply(self, gradients: list[Any]) -> None:
        tf = self.tf
        with tf.control_dependencies([each for each in gradients if each is not None]):
            self.begun.assign(self.counter + 1)
        # The API clips on each GPU, before gradients are summed over them.
        if self.options.clip:
            gradients, _ = tf.clip_by_global_norm(gradients, self.options.clip)
        with tf.control_dependencies([each for each in gradients if each is not None]):
            gradients = [each if each is None else tf.identity(each) for each in gradients]
        self.optimizer.apply_gradients(zip(gradients, self.trained, strict=True))
        self.counter.assign_add(1)

    def _draws(self, piece: Any) -> Any:
        """Random draws follow from the seed, the step, the micro-batch and the GPU: a resumed training has the same."""
        from oomproof.frameworks.tf_random import drawing_from

        tf = self.tf
        replica = tf.distribute.get_replica_context()
        place = replica.replica_id_in_sync_group if replica is not None else 0
        seed = tf.random.fold_in(tf.constant([self.options.seed, 1], tf.int64), self.counter)
        return drawing_from(tf.random.fold_in(tf.random.fold_in(seed, piece), place))

    def _local(self, value: Any, name: str) -> Any:
        """Of each GPU its own; nothing that a checkpoint needs."""
        tf = self.tf
        return tf.Variable(
            value, trainable=False, name=name, synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )  # fmt: skip
