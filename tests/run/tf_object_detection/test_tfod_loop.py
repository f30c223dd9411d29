"""A step that runs out of memory is done again in more micro-batches. The step here adds up a number of each image, so
that the API is not needed; what the API's own does is in test_tfod_run.py."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from oomproof.errors import OutOfMemory
from oomproof.run.tf_object_detection import loop as loops
from oomproof.run.tf_object_detection.request import TrainingRequest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow

IMAGES = 8


class SumStep:
    """Has room for ``room`` images at a time."""

    room = IMAGES
    error: Exception = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
    fails_in_update = False

    def __init__(self, tf: Any, model: Any, optimizer: Any, counter: Any, options: Any) -> None:
        self.counter, self.options, self.weight = counter, options, model
        self.begun = tf.Variable(counter.value())
        self.total, self.statistic = tf.Variable(0.0), optimizer
        self.before = tf.Variable(0.0)

    @property
    def adds(self) -> bool:
        return self.options.accumulate > 1

    def _use(self, image: Any) -> None:
        self.statistic.assign_add(100.0)  # as batch normalisation has changed before memory runs out
        if image.shape[0] > self.room:
            raise self.error

    def whole(self, features: Any, labels: Any) -> Any:
        self.before.assign(self.statistic)
        self._use(features["image"])
        self.begun.assign(self.counter + 1)
        if self.fails_in_update:
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
        self.weight.assign_add(tf.reduce_sum(features["image"]))
        self.counter.assign_add(1)
        return {"Loss/total_loss": tf.reduce_sum(features["image"])}

    def begin(self) -> None:
        self.total.assign(0.0)
        self.before.assign(self.statistic)

    def undo(self) -> None:
        self.statistic.assign(self.before)

    def add(self, features: Any, labels: Any, scale: Any) -> Any:
        self._use(features["image"])
        self.total.assign_add(tf.reduce_sum(features["image"]))
        self.statistic.assign(self.before)
        return {"Loss/total_loss": tf.reduce_sum(features["image"])}, tf.constant(True)

    def update(self) -> Any:
        self.begun.assign(self.counter + 1)
        self.weight.assign_add(self.total)
        self.counter.assign_add(1)
        return tf.constant(1.0), tf.constant(0.0)

    def skip(self) -> Any:
        self.counter.assign_add(1)
        return tf.constant(1.0), tf.constant(0.0)


def loop_of(monkeypatch: pytest.MonkeyPatch, room: int, said: list[str], **given: Any) -> loops.TrainingLoop:
    monkeypatch.setattr(loops, "DetectionStep", SumStep)
    monkeypatch.setattr(SumStep, "room", room)
    # Python decides here whether memory is there, so functions run as they are.
    monkeypatch.setattr(tf, "function", lambda function, autograph=True: function)
    from oomproof.changes.tf_object_detection.step import StepOptions

    counter, weight, statistic = tf.Variable(0, dtype=tf.int64), tf.Variable(0.0), tf.Variable(0.0)
    step = SumStep(tf, weight, statistic, counter, StepOptions("ssd", IMAGES))
    built: Any = SimpleNamespace(model=weight, optimizer=statistic, counter=counter, step=step)
    request = TrainingRequest("", "", 8, 8, 10, **given)
    return loops.TrainingLoop(tf, tf.distribute.get_strategy(), built, request, None, said.append)  # type: ignore[arg-type]


def batch() -> list[Any]:
    return [({"image": tf.range(float(IMAGES))}, {"boxes": tf.zeros((IMAGES, 4))})]


BEHIND = ValueError("Failed to serialize proto")
BEHIND.__context__ = SumStep.error


@pytest.mark.parametrize("error", [SumStep.error, MemoryError("std::bad_alloc"), BEHIND])
def test_it_is_cut_until_it_fits_and_stays_so(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    said: list[str] = []
    monkeypatch.setattr(SumStep, "error", error)
    loop = loop_of(monkeypatch, 2, said)
    losses = loop.update(batch())()
    assert float(loop.built.model) == 28.0, "all images, once"
    assert losses["Loss/total_loss"] == 28.0
    assert int(loop.built.counter) == 1
    assert float(loop.built.optimizer) == 0.0, "statistics of failed attempts are undone"
    assert [line.split(" in ")[1].split(" (")[0] for line in said] == ["2 micro-batches of 4", "4 micro-batches of 2"]
    loop.update(batch())
    assert float(loop.built.model) == 56.0
    assert len(said) == 2


def test_another_error_goes_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SumStep, "error", ValueError("shapes do not match"))
    with pytest.raises(ValueError, match="shapes do not match"):
        loop_of(monkeypatch, 2, []).update(batch())


def test_it_ends_where_one_image_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = loop_of(monkeypatch, 0, [])
    with pytest.raises(OutOfMemory, match="in step 1 with one image at a time"):
        loop.update(batch())
    assert float(loop.built.model) == 0.0
    assert int(loop.built.counter) == 0


def test_it_ends_where_the_update_had_begun_or_nobody_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = loop_of(monkeypatch, 2, [], retry=False)
    with pytest.raises(OutOfMemory, match="out of memory in step 1"):
        loop.update(batch())
    monkeypatch.setattr(SumStep, "fails_in_update", True)
    loop = loop_of(monkeypatch, IMAGES, [])
    with pytest.raises(OutOfMemory, match="when its update had begun: start again from the last checkpoint"):
        loop.update(batch())


@pytest.mark.parametrize(("room", "scale", "weight"), [(1024.0, 1024.0, 28.0), (0.5, 1.0, 0.0)])
def test_float16_looks_for_its_scale_with_one_batch(
    monkeypatch: pytest.MonkeyPatch, room: float, scale: float, weight: float
) -> None:
    """Where no scale will do, no weight is changed."""

    def add(self: SumStep, features: Any, labels: Any, scale: Any) -> Any:
        self.total.assign_add(tf.reduce_sum(features["image"]))
        return {"Loss/total_loss": tf.reduce_sum(features["image"])}, scale <= room

    monkeypatch.setattr(SumStep, "adds", True)
    monkeypatch.setattr(SumStep, "add", add)
    said: list[str] = []
    loop = loop_of(monkeypatch, IMAGES, said)
    loop.step.options = replace(loop.step.options, half=True)
    state = SimpleNamespace(scale=tf.Variable(4096.0), good=tf.Variable(7, dtype=tf.int64))
    loop.state = state  # type: ignore[assignment]
    assert loop.update(batch())()["Loss/total_loss"] == 28.0
    assert float(loop.built.model) == weight, "the sum of the last attempt, once"
    assert (float(state.scale), int(state.good), int(loop.built.counter)) == (scale, 0, 1)
    [line] = said
    assert ("weights stay as they are" in line) == (weight == 0.0)
    if weight:
        loop.update(batch())
        assert (float(state.scale), int(state.good)) == (scale, 1)
        assert len(said) == 1


def test_losses_of_two_stages_are_told_apart() -> None:
    from oomproof.run.tf_object_detection.progress import shorten

    names = ("Loss/localization_loss", "Loss/RPNLoss/localization_loss", "Loss/BoxClassifierLoss/mask_loss")
    assert [shorten(name) for name in names] == ["localization", "RPN localization", "BoxClassifier mask"]
    assert shorten("Loss/regularization_loss") == "regularization"


def test_the_reason_is_told_and_not_the_layer_that_keras_names_before_it() -> None:
    from oomproof.run.tf_object_detection.child import tell_reason

    wrapped = (
        "Exception encountered when calling layer 'D0' (type X).\n\nimage size must be >= 129\n\nCall arguments: ..."
    )
    assert tell_reason(wrapped) == "image size must be >= 129"
    assert tell_reason("no such file\nand more") == "no such file"
    assert tell_reason("") == ""
