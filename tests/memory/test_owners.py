"""Modules as stages: a detector's parts are told apart, a hundred layers are not listed, nothing gets lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomproof.memory.owners import SHOWN, stages

MIB = 1 << 20


def mask_rcnn() -> dict[str, int]:
    """Owners as a trace of torchvision's Mask R-CNN has them, with about the bytes each holds."""
    owners = {"(step)": 90 * MIB, "backbone.body.conv1": 60 * MIB, "backbone.body.bn1": 60 * MIB}
    for layer, (blocks, size) in enumerate(((3, 60), (4, 45), (6, 24), (3, 15)), 1):
        for block in range(blocks):
            for part in ("conv1", "bn1", "conv2", "bn2", "conv3", "bn3"):
                owners[f"backbone.body.layer{layer}.{block}.{part}"] = size * MIB
    for level in range(4):
        owners[f"backbone.fpn.inner_blocks.{level}.0"] = 40 * MIB
        owners[f"backbone.fpn.layer_blocks.{level}.0"] = 60 * MIB
    owners |= {"rpn.head.conv.0.0": 300 * MIB, "rpn.head.cls_logits": 20 * MIB, "rpn.head.bbox_pred": 40 * MIB}
    owners |= {"rpn.anchor_generator": 6 * MIB, "rpn": 30 * MIB, "roi_heads": 12 * MIB}
    owners |= {"roi_heads.box_roi_pool": 200 * MIB, "roi_heads.box_head.fc6": 250 * MIB}
    owners |= {"roi_heads.box_predictor.cls_score": 2 * MIB, "roi_heads.box_predictor.bbox_pred": 4 * MIB}
    owners |= {f"roi_heads.mask_head.{block}.0": 100 * MIB for block in range(4)}
    owners |= {"roi_heads.mask_predictor.conv5_mask": 300 * MIB, "roi_heads.mask_predictor.mask_fcn_logits": 400 * MIB}
    return owners


def test_parts_of_a_detector_are_told_apart() -> None:
    owners = mask_rcnn()
    found = stages(owners)
    for part in ("backbone.body", "backbone.fpn", "rpn", "roi_heads.box_head", "roi_heads.mask_head"):
        mine = sum(size for path, size in found if path == part or path.startswith(f"{part}."))
        true = sum(size for path, size in owners.items() if path == part or path.startswith(f"{part}."))
        assert mine == true > 0, part
    assert dict(found)["backbone.fpn"] == 400 * MIB
    assert len(weighty(found)) <= SHOWN
    assert not any(path.startswith("backbone.body.layer3.2.") for path, _ in found), "no single layers"


@pytest.mark.parametrize("limit", [5, 8, 14, 30])
def test_a_longer_list_goes_deeper(limit: int) -> None:
    found = stages(mask_rcnn(), limit)
    assert len(weighty(found)) <= limit
    assert sum(size for _, size in found) == sum(mask_rcnn().values())
    assert len(found) >= len(stages(mask_rcnn(), 5))


def test_nets_of_one_module() -> None:
    assert stages({"Linear": 7}) == (("Linear", 7),)
    assert stages({"": 7}) == (("", 7),)
    assert stages({}) == ()


def test_a_chain_of_single_children_is_opened_to_its_end() -> None:
    assert stages({"model.net.body.conv": 7}) == (("model.net.body.conv", 7),)


def test_a_long_sequential_stays_one_stage() -> None:
    layers = {f"features.{number}": MIB for number in range(60)}
    assert stages({**layers, "classifier": 9 * MIB}) == (("features", 60 * MIB), ("classifier", 9 * MIB))


def test_where_a_whole_level_is_too_long_the_fullest_modules_are_opened() -> None:
    """And names that only begin alike are not one module."""
    many = {f"big.{number}": 10 * MIB for number in range(20)}
    found = dict(stages({**many, "layer1.0": 30 * MIB, "layer1.1": 20 * MIB, "layer10.a": 5 * MIB}, limit=8))
    assert found == {"big": 200 * MIB, "layer1.0": 30 * MIB, "layer1.1": 20 * MIB, "layer10.a": 5 * MIB}


def weighty(found: tuple[tuple[str, int], ...]) -> list[str]:
    total = sum(size for _, size in found)
    return [path for path, size in found if size >= total / 100]


paths = st.lists(st.sampled_from(("a", "b", "conv", "0", "1", "10")), min_size=1, max_size=6).map(".".join)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(paths, st.integers(1, 1 << 40), max_size=60), st.integers(6, 20))
def test_nothing_gets_lost_and_the_list_stays_short(by_owner: dict[str, int], limit: int) -> None:
    found = stages(by_owner, limit)
    assert sum(size for _, size in found) == sum(by_owner.values())
    sizes = [size for _, size in found]
    assert sizes == sorted(sizes, reverse=True)
    assert len(weighty(found)) <= limit, "there are six modules at the top, so any limit from six on can be met"
    names = [path for path, _ in found]
    assert len(set(names)) == len(names)
    for owner in by_owner:
        assert sum(owner == path or owner.startswith(f"{path}.") for path in names) >= 1
    for path, size in found:
        inside = sum(each for owner, each in by_owner.items() if owner == path or owner.startswith(f"{path}."))
        assert size <= inside


def test_lines_of_code_stay_whole() -> None:
    lines = {"train.py:59 forward": 3 << 20, "train.py:60 backward": 2 << 20}
    assert stages(lines) == tuple(lines.items())
