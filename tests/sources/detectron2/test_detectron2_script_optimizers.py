"""Scripts that build an optimizer of their own: AdamW keeps twice the state of SGD."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.memory.timeline import KINDS
from oomproof.sources.detectron2.script.script import open_script
from oomproof.sources.settings import resolve
from oomproof.trace.request import TraceRequest

START = """
import torch
from detectron2 import model_zoo
from detectron2.engine import DefaultTrainer, SimpleTrainer
from detectron2.modeling import build_model
from detectron2.data import build_detection_train_loader
from detectron2.solver import build_optimizer
from detectron2.solver.build import maybe_add_gradient_clipping
cfg = model_zoo.get_config("COCO-Detection/faster_rcnn_R_50_FPN_1x.yaml")
cfg.SOLVER.KIND = "ADAMW"
"""
OWN = """
class Trainer(DefaultTrainer):
    @classmethod
    def build_optimizer(cls, cfg, model):
        {body}

Trainer(cfg).train()
"""
LOOP = """
def do_train(cfg, model):
    optimizer = {made}
    for data in build_detection_train_loader(cfg):
        loss = sum(model(data).values())
        loss.backward()
        optimizer.step()

do_train(cfg, build_model(cfg))
"""


def settings(folder: Path, text: str, **given: Any) -> Any:
    path = folder / "train_net.py"
    path.write_text(START + dedent(text), encoding="utf-8")
    return resolve(open_script(path, ()), given)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("return torch.optim.AdamW(model.parameters(), 1e-4)", "adamw"),
        ("return maybe_add_gradient_clipping(cfg, torch.optim.Adam)(model.parameters())", "adam"),
        ("return maybe_add_gradient_clipping(cfg, torch.optim.AdamW(model.parameters()))", "adamw"),
        ("return torch.optim.SGD(model.parameters(), 0.1) if cfg.SOLVER.KIND == 'SGD' else make(model)", "adamw"),
        ("return super().build_optimizer(cfg, model)", "own"),
        ("return DefaultTrainer.build_optimizer(cfg, model)", "own"),
        ("return build_optimizer(cfg, model)", "own"),
        ("kind = torch.optim.AdamW\n        return clipped(kind)(model.parameters())", "adamw"),
    ],
)
def test_the_optimizer_that_a_trainer_builds(body: str, kind: str, tmp_path: Path) -> None:
    text = "def make(model):\n    return torch.optim.AdamW(model.parameters())\n" + OWN.format(body=body)
    assert settings(tmp_path, text)["optimizer"] == kind


@pytest.mark.parametrize(
    "body",
    [
        "return solver.build(cfg, model)",
        "return torch.optim.AdamW(model.parameters()) if args.adam else torch.optim.SGD(model.parameters())",
        "return Lion(model.parameters())",
    ],
)
def test_an_optimizer_that_is_not_known_has_to_be_given(body: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"optimizer is decided by .*give --set optimizer=VALUE"):
        settings(tmp_path, OWN.format(body=body))
    assert settings(tmp_path, OWN.format(body=body), optimizer="adamw")["optimizer"] == "adamw"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (LOOP.format(made="build_optimizer(cfg, model)"), "own"),
        (LOOP.format(made="torch.optim.AdamW(model.parameters())"), "adamw"),
        (
            "model = build_model(cfg)\nSimpleTrainer(model, build_detection_train_loader(cfg), "
            "torch.optim.Adam(model.parameters())).train(0, 9)\n",
            "adam",
        ),
        ("DefaultTrainer(cfg).train()\n", "own"),
    ],
)
def test_the_optimizer_of_a_loop(text: str, kind: str, tmp_path: Path) -> None:
    assert settings(tmp_path, text)["optimizer"] == kind


@pytest.mark.slow
def test_its_state_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "train_net.py"
    held = []
    for body in ("return super().build_optimizer(cfg, model)", "return torch.optim.AdamW(model.parameters())"):
        path.write_text(START + dedent(OWN.format(body=body)), encoding="utf-8")
        job = open_script(
            path, ("SOLVER.IMS_PER_BATCH", "1", "INPUT.MIN_SIZE_TRAIN", "(64,)", "MODEL.MASK_ON", "False")
        )
        step = job.trace(TraceRequest(resolve(job, {"boxes": 2})))
        held.append(int(step.bytes[step.kind == KINDS.index("optimizer")].sum()))
    assert 1.9 * held[0] < held[1] < 2.1 * held[0]


@pytest.mark.parametrize("place", ["trainer.optimizer", "trainer._trainer.optimizer"])
def test_an_optimizer_that_is_put_into_a_trainer_trains(place: str, tmp_path: Path) -> None:
    made = f"trainer = DefaultTrainer(cfg)\n{place} = torch.optim.AdamW(trainer.model.parameters())\ntrainer.train()"
    assert settings(tmp_path, made)["optimizer"] == "adamw"


@pytest.mark.parametrize(
    "text",
    [
        "from other import make\nclass Trainer(DefaultTrainer):\n    build_optimizer = make\nTrainer(cfg).train()",
        "DefaultTrainer.build_optimizer = classmethod(lambda *given: None)\nDefaultTrainer(cfg).train()",
    ],
)
def test_a_builder_that_is_other_code_is_asked_for(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give --set optimizer=VALUE"):
        settings(tmp_path, text)
    assert settings(tmp_path, text, optimizer="adam")["optimizer"] == "adam"


def test_one_of_two_trainers_is_asked_for(tmp_path: Path) -> None:
    text = """
        import os
        from detectron2.engine import AMPTrainer
        model = build_model(cfg)
        kind = AMPTrainer if os.environ.get("HALF") else SimpleTrainer
        kind(model, build_detection_train_loader(cfg), torch.optim.SGD(model.parameters(), 0.1)).train(0, 9)
        """
    with pytest.raises(InputError, match="give --set precision=VALUE"):
        settings(tmp_path, text)
