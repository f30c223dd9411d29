"""Scripts that contain the code which oomproof printed are forecast with it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.sources.detectron2.job import Detectron2Job, open_detectron2
from oomproof.sources.detectron2.notes import note_device, notes
from oomproof.sources.detectron2.script.script import open_script
from oomproof.sources.settings import resolve

MASK = "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x.yaml"
START = f"""
from oomproof.run.detectron2 import Accumulate, AccumulatingTrainer, accumulate, accumulated_step, checkpoint_stages
cfg = model_zoo.get_config("{MASK}")
"""


def opened(folder: Path, text: str) -> Detectron2Job:
    path = folder / "train_net.py"
    path.write_text(START + dedent(text), encoding="utf-8")
    return open_script(path, ())


WAYS = {
    "hook": "trainer = DefaultTrainer(cfg)\ntrainer.register_hooks([Accumulate(4)])\ntrainer.train()\n",
    "hooks by name": "hooks = []\nhooks.append(Accumulate(count=4))\nt = Trainer(cfg)\nt.register_hooks(hooks)\n",
    "function": "trainer = DefaultTrainer(cfg)\naccumulate(trainer, 4)\n",
    "trainer": "AccumulatingTrainer(cfg, accumulate=4).train()\n",
    "subclass": """
        class Trainer(AccumulatingTrainer):
            def __init__(self, cfg):
                super().__init__(cfg, 4)
        Trainer(cfg).train()
        """,
    "built hooks": """
        class Trainer(DefaultTrainer):
            def build_hooks(self):
                hooks = super().build_hooks()
                hooks.insert(-1, Accumulate(4))
                return hooks
        Trainer(cfg).train()
        """,
    "own step": """
        class Trainer(SimpleTrainer):
            def run_step(self):
                accumulated_step(self, 4)
        model = build_model(cfg)
        Trainer(model, loader, optimizer).train()
        """,
}


@pytest.mark.parametrize("way", WAYS)
def test_accumulation_is_seen(way: str, tmp_path: Path) -> None:
    assert resolve(opened(tmp_path, WAYS[way]), {})["accumulate"] == 4


def test_after_the_training_has_begun_nothing_is_seen(tmp_path: Path) -> None:
    text = "trainer = DefaultTrainer(cfg)\ntrainer.train()\ntrainer.register_hooks([Accumulate(4)])\n"
    assert resolve(opened(tmp_path, text), {})["accumulate"] == 1


def test_a_count_that_nobody_knows_must_be_given(tmp_path: Path) -> None:
    job = opened(tmp_path, "trainer = DefaultTrainer(cfg)\ntrainer.register_hooks([Accumulate(args.count)])\n")
    with pytest.raises(InputError, match=r"accumulate is decided by args.count.*--set accumulate=VALUE"):
        resolve(job, {})
    assert resolve(job, {"accumulate": "2"})["accumulate"] == 2


def test_stages_gradients_and_precision(tmp_path: Path) -> None:
    text = """
        cfg.SOLVER.AMP.ENABLED = True
        trainer = DefaultTrainer(cfg)
        checkpoint_stages(trainer.model, "res3, res4:1")
        checkpoint_stages(trainer.model, ["roi_heads.mask_head"])
        trainer._trainer.zero_grad_before_forward = True
        trainer._trainer.precision = torch.bfloat16
        trainer.train()
        """
    settings = resolve(opened(tmp_path, text), {})
    assert settings["checkpoint"] == "backbone.bottom_up.res3,backbone.bottom_up.res4:1,roi_heads.mask_head"
    assert settings["zero_grad"] == "before_forward" and settings["precision"] == "bf16"
    c4 = indent(text, "").replace(
        "cfg.SOLVER.AMP.ENABLED", "cfg.MODEL.ROI_HEADS.NAME = 'Res5ROIHeads'\n        cfg.MODEL.MASK_ON"
    )
    c4 = c4.replace(
        "cfg.MODEL.ROI_HEADS", "cfg.MODEL.BACKBONE.NAME = 'build_resnet_backbone'\n        cfg.MODEL.ROI_HEADS", 1
    )
    settings = resolve(opened(tmp_path, c4.replace("res4:1", "res5")), {})
    assert settings["checkpoint"].startswith("backbone.res3,roi_heads.res5") and settings["precision"] == "fp32"


def test_a_training_on_the_cpu_is_noticed() -> None:
    job = open_detectron2(MASK, ("MODEL.DEVICE", "cpu"))
    settings = resolve(job, {})
    assert note_device(job.values(settings)) == ["MODEL.DEVICE cpu: this training uses no GPU; forecast is cuda"]
    assert "SOLVER.AMP.ENABLED" not in {knob.name for knob in job.knobs(settings, About())}
    second = open_detectron2(MASK, ("MODEL.DEVICE", "cuda:1"))
    assert note_device(second.values(resolve(second, {}))) == []
    assert "SOLVER.AMP.ENABLED" in {knob.name for knob in second.knobs(resolve(second, {}), About())}
    usual = open_detectron2(MASK)
    assert "SOLVER.AMP.ENABLED" in {knob.name for knob in usual.knobs(resolve(usual, {}), About())}


def test_full_samplers_are_said() -> None:
    job = open_detectron2(MASK)
    settings = resolve(job, {})
    told = "\n".join(notes(job.config, job.values(settings), settings))
    assert "samplers are taken as full: 128 regions" in told and "on sparse data a step takes less" in told
    assert "lower figure" not in told  # whether it is that of sparse data, only who traced them can say


@pytest.mark.parametrize(
    ("method", "guessed"),
    [
        ("def run_step(self):\n        self.model(next(self.data)).backward()", "run_step is code of the script"),
        ("def build_model(cls, cfg):\n        return Mine(cfg)", "build_model is code of the script"),
        ("def build_model(cls, cfg):\n        model = super().build_model(cfg)\n        return model", ""),
        ("def build_model(cls, cfg):\n        return build_model(cfg)", ""),
    ],
)
def test_own_code_of_a_trainer_stands_under_the_verdict(method: str, guessed: str, tmp_path: Path) -> None:
    mark = "@classmethod\n    " if "cls" in method else ""
    job = opened(tmp_path, f"class T(DefaultTrainer):\n    {mark}{method}\nT(cfg).train()\n")
    assert guessed in " ".join(job.config.guesses)
    assert bool(job.config.guesses) == bool(guessed)


def test_modules_that_its_own_build_model_computes_again_are_heeded(tmp_path: Path) -> None:
    text = f"""
        class Trainer(DefaultTrainer):
            @classmethod
            def build_model(cls, cfg):
                model = super().build_model(cfg)
                checkpoint_stages(model, "res4")
                return model
        Trainer(model_zoo.get_config("{MASK}")).train()
        """
    assert resolve(opened(tmp_path, text), {})["checkpoint"] == "backbone.bottom_up.res4"


def test_a_loader_that_is_put_into_a_trainer_has_its_batch(tmp_path: Path) -> None:
    text = f"""
        cfg = model_zoo.get_config("{MASK}")
        trainer = DefaultTrainer(cfg)
        trainer._trainer.data_loader = build_detection_train_loader(cfg, total_batch_size=3)
        trainer.train()
        """
    assert resolve(opened(tmp_path, text), {})["SOLVER.IMS_PER_BATCH"] == 3
