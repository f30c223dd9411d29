"""Detectron2's model zoo as a table of bench/accuracy.py: which rows are covered, and PyTorch as it was then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

BENCH = Path(__file__).parents[2] / "bench"
TABLE = """name,config,images_per_gpu,train_mem_gb,ims_per_batch,rpn_pre_nms_topk_train
densepose_rcnn_R_50_FPN_s1x | x,projects/DensePose/configs/densepose_rcnn_R_50_FPN_s1x.yaml,2,4.3,16,2000
mask_rcnn_R_50_FPN | x,configs/Cityscapes/mask_rcnn_R_50_FPN.yaml,1,4.4,8,2000
no_such | x,configs/COCO-Detection/no_such.yaml,2,4.4,16,2000
"""


@pytest.mark.thorough
def test_rows_that_are_not_covered_are_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(TABLE)
    command = [sys.executable, str(BENCH / "accuracy.py"), "table.csv"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, "nothing to compare"
    assert "covered 0 of 3 rows" in ran.stdout
    assert "not forecast: densepose_rcnn_R_50_FPN_s1x DensePose: projects/DensePose" in ran.stdout
    assert "not forecast: mask_rcnn_R_50_FPN Cityscapes: how many objects the most crowded image" in ran.stdout
    assert "not forecast: no_such: " in ran.stdout


def test_a_crowd_that_is_stated_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    from tables import read, with_crowds

    (tmp_path / "table.csv").write_text(TABLE)
    rows = list(read(tmp_path / "table.csv"))
    stated = [with_crowds(row, {"cityscapes": 120}) for row in rows]
    assert [row.name for row in stated if not row.reason] == ["mask_rcnn_R_50_FPN Cityscapes (120 objects)"]
    assert stated[1].settings["boxes"] == 120 and stated[1].job is not None
    assert [with_crowds(row, {"lvis": 120}) for row in rows] == rows


@pytest.mark.parametrize(("kind", "now", "then"), [("relu", 1, 2), ("cross_entropy", 1, 2)])
def test_what_pytorch_kept_in_2019(kind: str, now: int, then: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    from old_pytorch import _old_functions

    layer = torch.nn.Linear(300, 300)

    def kept() -> int:
        """Different tables of the batch's size that stay for backward, the input of the first layer left aside."""
        x = torch.rand(64, 300)
        found: dict[int, torch.Tensor] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.shape == x.shape and tensor.data_ptr() != x.data_ptr():
                found[tensor.data_ptr()] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            y = layer(x)
            if kind == "relu":
                layer(F.relu(y)).sum().backward()
            else:
                F.cross_entropy(y, torch.zeros(64, dtype=torch.int64)).backward()
        return len(found)

    assert kept() == now
    with _old_functions():
        assert kept() == then


def test_old_functions_have_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    from old_pytorch import _old_functions

    def gradient() -> torch.Tensor:
        x = torch.linspace(-1, 1, 30).reshape(5, 6).requires_grad_()
        F.cross_entropy(F.relu(x), torch.arange(5)).backward()
        assert x.grad is not None
        return x.grad

    now = gradient()
    with _old_functions():
        torch.testing.assert_close(gradient(), now)


def test_detectron2_of_2019_took_more_for_every_pair_of_box_and_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways give the same table; the most that is live while it is made was 37 bytes a pair, and is 24."""
    monkeypatch.syspath_prepend(str(BENCH))
    from old_detectron2 import old_matching
    from oomproof.sources.detectron2.blueprint import matching

    corners = torch.rand(400, 2) * 100
    anchors = torch.cat((corners, corners + 20), dim=1)
    boxes = anchors[:50] + 3

    def most_live() -> float:
        with torch.profiler.profile(profile_memory=True) as profile:
            matching.overlaps(boxes, anchors)
        live, most = 0, 0
        for event in sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
            live += event.nbytes() if event.name() == "[memory]" else 0
            most = max(most, live)
        return most / (len(boxes) * len(anchors))

    now = matching.overlaps(boxes, anchors)
    assert most_live() == pytest.approx(24, rel=0.1)
    with old_matching():
        torch.testing.assert_close(matching.overlaps(boxes, anchors), now)
        assert most_live() == pytest.approx(37, rel=0.1)


def test_rows_measured_again_are_traced_with_the_matching_of_today(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    from old_detectron2 import OldDetectron2
    from tables import read

    head = TABLE.splitlines()[0]
    configs = ("COCO-Detection/retinanet_R_50_FPN_1x", "COCO-Detection/faster_rcnn_R_50_FPN_1x")
    lines = [f"{config.split('/')[1]} | x,configs/{config}.yaml,2,4.1,16,2000" for config in configs]
    (tmp_path / "table.csv").write_text("\n".join((head, *lines)))
    assert [isinstance(row.job, OldDetectron2) for row in read(tmp_path / "table.csv")] == [False, True]
