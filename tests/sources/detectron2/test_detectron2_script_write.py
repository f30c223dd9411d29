"""Plans for scripts: written as a config that the script merges last, and never where something was guessed."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import oomproof
from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.settings import Settings
from oomproof.sources.detectron2.config.config import read
from oomproof.sources.detectron2.config.yaml_file import parse
from oomproof.sources.detectron2.job import Detectron2Job
from oomproof.sources.detectron2.script.script import open_script
from oomproof.sources.settings import resolve

MASK = "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x.yaml"
SCRIPT = f"""
    cfg = model_zoo.get_config("{MASK}")
    cfg.SOLVER.IMS_PER_BATCH = 32
    cfg.SOLVER.BASE_LR = args.lr
    cfg.OUTPUT_DIR = args.out
    DefaultTrainer(cfg).train()
    """


def opened(folder: Path, text: str, *overrides: str) -> Detectron2Job:
    path = folder / "train_net.py"
    path.write_text(dedent(text), encoding="utf-8")
    return open_script(path, overrides)


def planned(job: Detectron2Job, **changes: Any) -> Settings:
    return resolve(job, {"expandable_segments": False}).with_values(changes)


def test_what_only_a_run_tells_stays_what_the_script_makes_it(tmp_path: Path) -> None:
    job = opened(tmp_path, SCRIPT)
    target = tmp_path / "fitted.yaml"
    job.write(planned(job, **{"SOLVER.IMS_PER_BATCH": 16, "accumulate": 2}), target)
    keys = parse(target.read_text(), "fitted").leaves
    assert "SOLVER.BASE_LR" not in keys and "OUTPUT_DIR" not in keys  # 0.02 of the zoo would win over args.lr
    assert keys["SOLVER.IMS_PER_BATCH"] == 16  # as Detectron2 has it by default, but not as the script has it
    assert read(target).values["MODEL.MASK_ON"] is True


def test_code_that_the_script_has_is_not_told_again(tmp_path: Path) -> None:
    hooks = "trainer = DefaultTrainer(cfg); trainer.register_hooks([Accumulate(2)]); trainer.train()"
    job = opened(tmp_path, SCRIPT.replace("DefaultTrainer(cfg).train()", hooks))
    assert "Accumulate" not in job.write(planned(job), tmp_path / "same.yaml")
    told = job.write(planned(job, accumulate=4), tmp_path / "other.yaml")
    assert "Accumulate(4)" in told and "instead of Accumulate(2)" in told


def test_a_loader_that_ignores_the_config_is_not_mended_by_another_config(tmp_path: Path) -> None:
    job = opened(
        tmp_path,
        f"""
        class Trainer(DefaultTrainer):
            @classmethod
            def build_train_loader(cls, cfg):
                return build_detection_train_loader(cfg, total_batch_size=6)
        Trainer(model_zoo.get_config("{MASK}")).train()
        """,
    )
    with pytest.raises(InputError, match=r"total_batch_size=6 decides .* let it take that from the config"):
        job.write(planned(job), tmp_path / "fitted.yaml")


def test_a_plan_that_rests_on_what_nobody_knows_is_not_written(tmp_path: Path) -> None:
    job = opened(tmp_path, SCRIPT)
    target = tmp_path / "fitted.yaml"
    with pytest.raises(InputError, match=r"SOLVER.BASE_LR = args.lr.*give it behind the job: SOLVER.BASE_LR VALUE"):
        job.write(planned(job, **{"SOLVER.IMS_PER_BATCH": 16, "SOLVER.BASE_LR": 0.01}), target)
    assert not target.exists()
    given = opened(tmp_path, SCRIPT, "SOLVER.BASE_LR", "0.04")
    given.write(planned(given, **{"SOLVER.IMS_PER_BATCH": 16, "SOLVER.BASE_LR": 0.02}), target)
    assert read(target).values["SOLVER.BASE_LR"] == 0.02


def test_knobs_that_rest_on_what_nobody_knows_are_not_offered(tmp_path: Path) -> None:
    script = SCRIPT.replace("cfg.OUTPUT_DIR", "cfg.MODEL.WEIGHTS")
    unknown, known = opened(tmp_path, script), opened(tmp_path, SCRIPT, "SOLVER.BASE_LR", "0.04")
    offered, usual = ({knob.name: knob for knob in job.knobs(planned(job), About())} for job in (unknown, known))
    assert usual.keys() - offered.keys() == {"MODEL.BACKBONE.FREEZE_AT"}
    assert not any("alone" in str(option.value) for option in offered["SOLVER.IMS_PER_BATCH"].options)
    assert any("alone" in str(option.value) for option in usual["SOLVER.IMS_PER_BATCH"].options)


@pytest.mark.parametrize("call", ["add_deeplab_config(cfg)", "setup(cfg)", "mine.setup(config=cfg)"])
def test_code_that_may_change_the_config_forbids_writing(call: str, tmp_path: Path) -> None:
    text = f"""
        from somewhere.configs import setup, add_deeplab_config
        import mine
        cfg = get_cfg()
        {call}
        DefaultTrainer(cfg).train()
        """
    job = opened(tmp_path, text)
    name = call.partition("(")[0].rpartition(".")[2]
    assert any(f"train_net.py:5: {name}" in guess for guess in job.config.guesses)
    with pytest.raises(InputError, match=f"{name}.*a plan cannot be written"):
        _ = job.place
    with pytest.raises(InputError, match="cannot be written"):
        job.write(planned(job), tmp_path / "fitted.yaml")


def test_code_that_may_change_the_config_stands_under_the_verdict(tmp_path: Path) -> None:
    job = opened(tmp_path, "import mine\ncfg = get_cfg()\nmine.setup(cfg)\nDefaultTrainer(cfg).train()\n")
    forecast = oomproof.check(job, on="8GiB", image_size=(64, 64), boxes=2, **{"SOLVER.IMS_PER_BATCH": 1})
    said = f"{tmp_path}/train_net.py:3: setup of mine may change the config, which is not known here"
    assert forecast.unseen == (said,)


def test_code_of_detectron2_and_of_python_does_not(tmp_path: Path) -> None:
    text = """
        from detectron2.engine import default_setup, DefaultTrainer
        import pprint, logging, wandb
        logger = logging.getLogger()
        cfg = get_cfg()
        default_setup(cfg, args)
        pprint.pprint(cfg)
        logger.info(cfg)
        wandb.init(config=cfg)
        DefaultTrainer(cfg).train()
        """
    assert opened(tmp_path, text).place == tmp_path / "train_net.fitted.yaml"
