"""By what a micro-batch counts in the loss of the whole batch, for each kind of model of the API.

The API divides losses by something that it counts in the batch: anchors that match an object (SSD), images (Faster
R-CNN), objects (CenterNet). A mean over micro-batches would weigh a matched anchor less in a micro-batch that has many.
With ``own``, by which the API has divided the loss of this micro-batch, and ``count``, what it adds to the divisor of
the whole batch, the loss of the whole batch is sum(own x loss) / max(sum(count), 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oomproof.frameworks.object_detection import divides_by_matches, watch_matches


@dataclass(frozen=True)
class Share:
    own: Any
    count: Any


ShareOf = Callable[[Any, int, int], Share]
"""(labels of a micro-batch as the API unstacks them, its images, images of the whole batch) -> its share, to be asked
after the losses were computed"""


def share_of(tf: Any, kind: str, model: Any) -> ShareOf:
    """``kind``: ssd, faster_rcnn, center_net. Watches the model where only its losses know."""
    return {"ssd": _ssd, "faster_rcnn": _by_images, "center_net": _by_objects}[kind](tf, model)


def why_not_exact(kind: str, *, masks: bool, several_tasks: bool, draws: bool) -> tuple[str, ...]:
    """Where the gradients of micro-batches cannot be those of the whole batch, normalisation of activations apart."""
    found = []
    if kind == "faster_rcnn":
        found.append("regions and anchors are sampled by chance, image by image: other draws, of the same kind")
        if masks:
            found.append("the mask loss is divided by the masks of each micro-batch, not of the whole batch")
    if kind == "center_net" and several_tasks:
        found.append("losses of keypoints and masks are divided by those of each micro-batch, and weighed by objects")
    if kind == "ssd" and draws:
        found.append("layers drop out, or anchors are sampled, by chance: other draws, of the same kind")
    return tuple(found)


def _ssd(tf: Any, model: Any) -> ShareOf:
    """Anchors that match an object, by their weights, as the localisation loss gets them."""
    seen: list[Any] = []
    watch_matches(model, seen)

    def share(labels: Any, images: int, whole: int) -> Share:
        if not divides_by_matches(model):  # a plain sum over images
            return Share(tf.constant(1.0), tf.constant(images / whole))
        matched = tf.reduce_sum(tf.cast(seen.pop(), tf.float32))
        return Share(tf.maximum(matched, 1.0), matched)

    return share


def _by_images(tf: Any, model: Any) -> ShareOf:
    def share(labels: Any, images: int, whole: int) -> Share:
        return Share(tf.constant(float(images)), tf.constant(float(images)))

    return share


def _by_objects(tf: Any, model: Any) -> ShareOf:
    def share(labels: Any, images: int, whole: int) -> Share:
        weights = labels["groundtruth_weights"]
        objects = tf.cast(tf.add_n([tf.math.count_nonzero(each) for each in weights]), tf.float32)
        return Share(tf.maximum(objects, 1.0), objects)

    return share
