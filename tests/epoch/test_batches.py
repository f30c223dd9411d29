"""Rules, images, the model of memory, the search, chances and remedies: what they say of data that is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from unittest.mock import patch

import numpy as np
import pytest
from small_detector import RESIZED, make_dataset, random_dataset, small_job

import oomproof
from oomproof.epoch import worst_batch
from oomproof.epoch.drawing import draw_epochs
from oomproof.epoch.features import NAMES, batch_features, find_padded_size
from oomproof.epoch.images import Images, see_images
from oomproof.epoch.memory_model import MemoryModel, fit_model
from oomproof.epoch.remedies import find_remedies
from oomproof.epoch.search import ALL, find_worst
from oomproof.epoch.skyline import find_skyline
from oomproof.epoch.worst_batch import find_worst_batch
from oomproof.memory.batch_rule import BatchRule, describe_rule, regroup, resize
from oomproof.memory.cards.devices import find_device
from oomproof.memory.settings import Settings
from oomproof.sources import open_job
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest

PER_OBJECT = MemoryModel(np.array([[1.0 if name == "objects" else 0.0 for name in NAMES]]))
MIXED = MemoryModel(
    np.array(
        [
            [5.0 if name == "padded pixels" else 0.0 for name in NAMES],
            [1.0 if name == "most objects x padded pixels" else 0.0 for name in NAMES],
        ]
    )
)


def images_of(objects: list[int], rule: BatchRule = RESIZED) -> Images:
    return see_images(make_dataset([(48, 64)] * len(objects), objects), rule)


@pytest.mark.parametrize(
    ("stored", "expected"), [((480, 640), (800, 1067)), ((640, 480), (1067, 800)), ((100, 1000), (133, 1333))]
)
def test_detectron2_resizes_as_it_does(stored: tuple[int, int], expected: tuple[int, int]) -> None:
    job = open_job("COCO-Detection/retinanet_R_50_FPN_1x.yaml")
    rule = job.batch_rule(resolve(job, {"SOLVER.IMS_PER_BATCH": 2}))
    heights, widths = resize(rule, np.array([stored[0]]), np.array([stored[1]]), 800)
    assert (int(heights[0]), int(widths[0])) == expected
    assert rule.sides == (640, 672, 704, 736, 768, 800) and rule.grouping == "upright" and not rule.empty


def test_torchvision_resizes_as_it_does() -> None:
    import torch
    from torchvision.models.detection.transform import GeneralizedRCNNTransform

    job = open_job("torchvision:retinanet_resnet50_fpn")
    rule = job.batch_rule(resolve(job, {"batch": 2, "image_size": "96x150"}))
    resizer = GeneralizedRCNNTransform(96, 150, [0.0] * 3, [1.0] * 3)
    chance = np.random.default_rng(0)
    sizes = [(int(high), int(wide)) for high, wide in chance.integers(20, 300, (40, 2))]
    for stored in sizes:
        real, _ = resizer.resize(torch.rand(3, *stored))
        heights, widths = resize(rule, np.array([stored[0]]), np.array([stored[1]]), 96)
        assert (int(heights[0]), int(widths[0])) == tuple(real.shape[1:]), stored
    images = see_images(make_dataset(sizes, [1] * len(sizes)), rule)
    pair = [torch.rand(3, *sizes[0]), torch.rand(3, *sizes[1])]
    assert find_padded_size(images, (0, 1)) == tuple(resizer(pair)[0].tensors.shape[2:])


def test_grouping_is_on_off_or_as_the_job_has_it() -> None:
    job = open_job("torchvision:maskrcnn_resnet50_fpn")
    rule = job.batch_rule(resolve(job, {}))
    assert "any images share a batch" in describe_rule(regroup(rule, None))
    assert "of like aspect ratio" in describe_rule(regroup(rule, True))
    images = see_images(make_dataset([(48, 64), (64, 48), (48, 65), (48, 48)], [1] * 4), regroup(rule, True))
    assert images.groups[0] == images.groups[2] != images.groups[1]
    assert regroup(regroup(rule, True), False).grouping == ""


def test_models_that_do_not_depend_on_the_data_say_so() -> None:
    for name in ("torchvision:resnet18", "torchvision:fcn_resnet50"):
        answer = oomproof.check(name, "8GiB", data=make_dataset([(48, 64)], [1]), batch=2)
        assert answer.epoch is None and any("need the same on the device" in note for note in answer.notes)
        assert "annotations" in answer.host_parts and "the dataset in host RAM" not in answer.not_counted
        assert answer.allocated == oomproof.check(name, "8GiB", batch=2).allocated
    own = oomproof.TorchJob(lambda: None, lambda: None, lambda model, batch: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(oomproof.InputError, match=r"--data wants a batch\(images\)"):
        oomproof.check(own, "8GiB", data=make_dataset([(48, 64)], [1]))
    with pytest.raises(oomproof.InputError, match="how many images a batch has"):
        replace(small_job(), batches=None).batch_rule(Settings())


def test_images_without_objects_are_dropped_where_the_training_drops_them() -> None:
    assert len(images_of([0, 3, 0, 5])) == 4
    dropping = images_of([0, 3, 0, 5], replace(RESIZED, empty=False))
    assert dropping.names == ("1.jpg", "3.jpg") and dropping.left_out == 2
    with pytest.raises(oomproof.InputError, match="none of its 2 images has an object"):
        images_of([0, 0], replace(RESIZED, empty=False))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("grouping", ["", "upright"])
def test_the_search_finds_what_all_batches_show(seed: int, grouping: str) -> None:
    rule = replace(RESIZED, images=3, grouping=grouping)  # type: ignore[arg-type]
    images = see_images(random_dataset(seed, 14), rule)
    heights, widths = images.sizes
    able = [
        batch
        for batch in combinations(range(14), 3)
        if len({int(images.groups[place]) for place in batch}) == 1
    ]  # fmt: skip
    best = MIXED.predict(batch_features(images, heights, widths, np.array(able))).max()
    found = np.array(find_worst(images, MIXED, 3)[:1])
    assert MIXED.predict(batch_features(images, heights, widths, found))[0] == pytest.approx(best)


def test_the_search_by_exchange_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    images = see_images(random_dataset(5, 60), replace(RESIZED, images=3))
    heights, widths = images.sizes
    whole = find_worst(images, MIXED, 3)[0]
    monkeypatch.setattr("oomproof.epoch.search.ALL", 0)
    climbed = find_worst(images, MIXED, 3)[0]
    rated = MIXED.predict(batch_features(images, heights, widths, np.array([whole, climbed])))
    assert ALL > 0 and rated[0] == pytest.approx(rated[1])


def test_the_skyline_leaves_out_what_is_exceeded_often_enough() -> None:
    images = images_of([5, 9, 1, 7, 3])
    assert sorted(find_skyline(images, np.arange(5), 2).tolist()) == [1, 3]


def test_a_line_for_each_moment_is_found_again() -> None:
    images = see_images(random_dataset(1, 40), RESIZED)
    batches = np.array(list(combinations(range(12), 2)))
    heights, widths = images.sizes
    rows = batch_features(images, heights, widths, batches)
    truth = MemoryModel(MIXED.weights * 1e6)
    moments = [
        {("forward", "a", "conv"): int(first), ("forward", "b", "match"): int(second)}
        for first, second in rows @ truth.weights.T
    ]
    others = batch_features(images, heights, widths, np.array(list(combinations(range(20, 40), 2))))
    assert fit_model(rows, moments).predict(others) == pytest.approx(truth.predict(others), rel=0.02)


def test_the_chance_of_an_epoch_with_a_crowd() -> None:
    images = images_of([1] * 98 + [50, 50])
    drawn = draw_epochs(images, PER_OBJECT, 2)
    assert drawn.batches == 50
    assert drawn.chance_above(49) == (1.0, False)  # every epoch has a crowded image beside another one
    together, is_bound = drawn.chance_above(99)  # both in one batch
    assert not is_bound and together == pytest.approx(1 / 99, abs=3 * (1 / 99 / len(drawn.needs)) ** 0.5)
    assert drawn.chance_above(1000) == (pytest.approx(1 / len(drawn.needs)), True)


def test_what_to_change_about_the_data() -> None:
    images = images_of([1] * 90 + [40, 50, 60])
    drop, crop = find_remedies(images, PER_OBJECT, 2, 20.0)[:2]
    assert (drop.kind, drop.count, set(drop.images)) == ("drop", 3, {"90.jpg", "91.jpg", "92.jpg"})
    assert (crop.kind, crop.limit, crop.count) == ("crop", 10, 3)
    assert crop.images == ("92.jpg", "91.jpg", "90.jpg")
    resized = see_images(make_dataset([(480, 640)] * 9, [1] * 9), replace(RESIZED, sides=(800,), longest=1333))
    pixels = MemoryModel(np.array([[1.0 if name == "padded pixels" else 0.0 for name in NAMES]]))
    remedy = find_remedies(resized, pixels, 2, 1.0)[-1]
    assert remedy.kind == "resize" and remedy.limit == 608  # 608 x 816 pixels twice are 0.99 million


def test_a_dataset_smaller_than_the_batch() -> None:
    answer = oomproof.check(
        small_job(rule=replace(RESIZED, images=8)), "8GiB", data=make_dataset([(48, 64)] * 3, [2] * 3)
    )
    assert answer.epoch is not None and len(answer.epoch.worst.spec.images) == 3


def test_the_answer_names_the_images_and_the_rule() -> None:
    data = make_dataset([(48, 64)] * 20 + [(64, 48)], [2] * 10 + [400] + [2] * 9 + [90])
    answer = oomproof.check(small_job(), "8GiB", data=data)
    assert answer.fits and answer.epoch is not None
    assert {image.name for image in answer.epoch.worst.spec.images} == {"10.jpg", "20.jpg"}
    assert answer.epoch.worst.padded == (64, 64)
    assert answer.epoch.typical.spec.objects == 4
    grouped = oomproof.check(small_job(), "8GiB", data=data, grouping=True)
    assert grouped.epoch is not None and grouped.epoch.worst.padded == (48, 64)


@pytest.mark.thorough
def test_a_batch_that_was_traced_and_fails_is_never_taken_for_remedied() -> None:
    """The model may take the worst batch for smaller than it is; a remedy of no images would be none."""
    job, data = small_job(), make_dataset([(64, 64)] * 6, [1, 2, 1, 60, 2, 1])
    request = TraceRequest(resolve(job, {}), find_device("8GiB"))
    usual = find_worst_batch(job, data, request)
    short = replace(find_device("8GiB"), total=usual.forecast.on_device.high - (1 << 20))
    with patch.object(worst_batch, "find_limit", lambda traced, outcome: 1e18):
        epoch = find_worst_batch(job, data, replace(request, device=short)).forecast.epoch
    assert epoch is not None and epoch.worst.outcome != "fits"
    assert all(remedy.count > 0 for remedy in epoch.remedies)
