"""Loaders that a script builds itself: their batch, and images whose size the config does not decide."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.sources.detectron2.job import Detectron2Job
from oomproof.sources.detectron2.notes import notes
from oomproof.sources.detectron2.script.script import open_script
from oomproof.sources.settings import resolve

KEY = "SOLVER.IMS_PER_BATCH"
HEAD = """
from detectron2.data import transforms as T
cfg = get_cfg()
cfg.SOLVER.IMS_PER_BATCH = 4
def resizing(d):
    return T.apply_transform_gens([T.Resize((1600, 1600))], d)
class ByConfig:
    def __init__(self, cfg):
        self.augmentations = utils.build_augmentation(cfg, True)
"""
TRAINER = """
class Trainer(DefaultTrainer):
    @classmethod
    def build_train_loader(cls, cfg):
        {body}
Trainer(cfg).train()
"""
BY_HAND = """
model = build_model(cfg)
loader = {body}
SimpleTrainer(model, loader, optimizer).train()
"""


def opened(folder: Path, text: str) -> Detectron2Job:
    path = folder / "train_net.py"
    path.write_text(HEAD + text, encoding="utf-8")
    return open_script(path, ())


def of_trainer(folder: Path, body: str) -> Detectron2Job:
    return opened(folder, TRAINER.format(body=body))


OVERRULED = {
    "a number": "return build_detection_train_loader(cfg, total_batch_size=12)",
    "by place": "return build_batch_data_loader(MapDataset(d, DatasetMapper(cfg)), sampler, 12)",
    "of the key": "return build_detection_train_loader(cfg, total_batch_size=cfg.SOLVER.IMS_PER_BATCH * 3)",
    "another config": "c = cfg.clone(); c.SOLVER.IMS_PER_BATCH = 12; return super().build_train_loader(c)",
}


@pytest.mark.parametrize("way", OVERRULED)
def test_the_batch_of_a_loader_is_that_of_the_training(way: str, tmp_path: Path) -> None:
    job = of_trainer(tmp_path, OVERRULED[way])
    assert resolve(job, {})[KEY] == 12
    with pytest.raises(InputError, match=f"decides {KEY} for the training.*cannot be written"):
        _ = job.place


def test_the_loader_of_a_loop_of_ones_own(tmp_path: Path) -> None:
    job = opened(tmp_path, BY_HAND.format(body="build_detection_train_loader(cfg, total_batch_size=2)"))
    assert resolve(job, {})[KEY] == 2
    seen = "DefaultTrainer(cfg).train()\nbuild_detection_train_loader(cfg, total_batch_size=2)\n"  # to look at
    assert resolve(opened(tmp_path, seen), {})[KEY] == 4


@pytest.mark.parametrize(
    "body",
    [
        "return DataLoader(MyData(), batch_size=8)",
        "return build_detection_train_loader(cfg, total_batch_size=int(os.environ['BATCH']))",
        "return Both(build_detection_train_loader(cfg), build_detection_train_loader(cfg, total_batch_size=2))",
    ],
)
def test_a_batch_of_a_loader_that_nobody_knows_must_be_given(body: str, tmp_path: Path) -> None:
    job = of_trainer(tmp_path, body)
    with pytest.raises(InputError, match=rf"{KEY}.*not known before the script runs.*{KEY} VALUE"):
        resolve(job, {"image_size": "800x1333"})
    assert resolve(job, {KEY: "6", "image_size": "800x1333"})[KEY] == 6


@pytest.mark.parametrize(
    "body",
    [
        "return build_detection_train_loader(cfg)",
        "return build_detection_train_loader(cfg, mapper=DatasetMapper(cfg, is_train=True))",
        "return build_detection_train_loader(cfg, mapper=ByConfig(cfg), total_batch_size=cfg.SOLVER.IMS_PER_BATCH)",
        "return super().build_train_loader(cfg)",
        "return build_detection_train_loader(cfg, mapper=DatasetMapper(cfg, augmentations="
        "[T.ResizeShortestEdge(cfg.INPUT.MIN_SIZE_TRAIN, 1333), T.RandomFlip()]))",
    ],
)
def test_a_loader_that_follows_the_config_asks_for_nothing(body: str, tmp_path: Path) -> None:
    job = of_trainer(tmp_path, body)
    settings = resolve(job, {})
    assert (settings[KEY], settings["image_size"]) == (4, (800, 1333))
    assert job.place  # nothing is guessed


SIZES = {
    "a list": "DatasetMapper(cfg, augmentations=[T.Resize((1024, 1024))])",
    "none": "DatasetMapper(cfg, augmentations=[T.RandomFlip()])",
    "a function": "resizing",
    "of a function": "partial(resizing, flip=True)",
    "larger than that": "DatasetMapper(cfg, augmentations=[*build_augmentation(cfg, True), T.RandomRotation(30)])",
    "of a project": "project.Mapper(cfg)",
}


@pytest.mark.parametrize("loop", [TRAINER, BY_HAND])
@pytest.mark.parametrize("way", SIZES)
def test_images_that_other_code_resizes_must_be_given(way: str, loop: str, tmp_path: Path) -> None:
    call = f"build_detection_train_loader(cfg, mapper={SIZES[way]})"
    job = opened(tmp_path, loop.format(body=f"return {call}" if loop is TRAINER else call))
    with pytest.raises(InputError, match=r"image_size is decided by .*--image-size HxW"):
        resolve(job, {})
    settings = resolve(job, {"image_size": "1600x1600"})
    assert "INPUT.MIN_SIZE_TRAIN" not in {knob.name for knob in job.knobs(settings, About())}
    said = notes(job.config, job.values(settings), settings, own_sizes=bool(job.open))
    assert not any("Detectron2 makes images smaller" in note for note in said)


def test_a_model_of_a_trainers_own_may_change_the_config(tmp_path: Path) -> None:
    text = """
        class Trainer(DefaultTrainer):
            @classmethod
            def build_model(cls, cfg):
                cfg.MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE = 32
                return super().build_model(cfg)
        Trainer(cfg).train()
        """
    assert opened(tmp_path, dedent(text)).config.values["MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE"] == 32
