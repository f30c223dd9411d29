"""Training scripts: the config that their code makes, and the keys in it that do nothing. Nothing is run."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from oomproof.errors import InputError
from oomproof.sources import open_job
from oomproof.sources.detectron2.config.config import Config, read
from oomproof.sources.detectron2.config.inventions import advice
from oomproof.sources.detectron2.config.schema import DEFAULTS
from oomproof.sources.detectron2.job import Detectron2Job
from oomproof.sources.detectron2.script.script import is_script, read_script

MASK = "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x.yaml"


def config_of(folder: Path, text: str) -> Config:
    path = folder / "train_net.py"
    path.write_text(dedent(text), encoding="utf-8")
    assert is_script(path)
    return read_script(path)


def test_a_tutorial(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        f"""
        from detectron2 import model_zoo
        from detectron2.config import get_cfg
        import os
        BATCH = 4
        cfg = get_cfg()
        cfg.merge_from_file(model_zoo.get_config_file("{MASK}"))
        cfg.DATASETS.TRAIN = ("balloon_train",)
        cfg.SOLVER.IMS_PER_BATCH = BATCH // 2
        cfg.SOLVER.ACCUMULATION_STEPS = 8
        cfg["SOLVER"]["BASE_LR"] = 0.02 * cfg.SOLVER.IMS_PER_BATCH / 16
        cfg.MODEL.ROI_HEADS.BATCH_SIZE_PER_IMG = 128
        cfg.OUTPUT_DIR = os.environ["OUT"]
        trainer = DefaultTrainer(cfg)
        trainer.train()
        cfg.SOLVER.IMS_PER_BATCH = 1   # for inference, after the training
        open("it ran", "w")
        """,
    )
    assert config.values["SOLVER.IMS_PER_BATCH"] == 2 and config.values["SOLVER.BASE_LR"] == 0.0025
    assert config.values["MODEL.RPN.PRE_NMS_TOPK_TRAIN"] == 2000
    assert config.origins["SOLVER.IMS_PER_BATCH"].line == 9
    told = "\n".join(config.notes)
    assert "train_net.py:10: SOLVER.ACCUMULATION_STEPS does nothing" in told and "no gradient accumulation" in told
    assert "Did you mean MODEL.ROI_HEADS.BATCH_SIZE_PER_IMAGE?" in told
    assert "OUTPUT_DIR = os.environ['OUT'] is not known" in config.unknown["OUTPUT_DIR"]
    assert len(config.notes) == 2 and len(config.unknown) == 1
    assert not Path("it ran").exists()


def test_functions_launchers_and_arguments(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        """
        def add_mine(cfg):
            cfg.INPUT.MIN_SIZE_TRAIN = 600

        def setup(args):
            cfg = get_cfg()
            add_mine(cfg)
            solver = cfg.SOLVER
            solver.IMS_PER_BATCH = args.batch
            solver.MAX_ITER *= 2
            if args.amp:
                solver.AMP.ENABLED = True
            if args.big:
                cfg.MODEL.RESNETS.DEPTH = 101
            cfg.merge_from_list(["MODEL.MASK_ON", True, "SOLVER.STEPS", "(5, 6)"])
            cfg.merge_from_list(args.opts)
            cfg.freeze()
            return cfg

        def main(args):
            cfg = setup(args)
            if args.eval_only:
                return None
            return Trainer(cfg).train()

        if __name__ == "__main__":
            parser = default_argument_parser()
            parser.add_argument("--batch", type=int, default=6)
            parser.add_argument("--amp", action="store_true")
            launch(main, 4, args=(parser.parse_args(),))
        """,
    )
    values = config.values
    assert values["SOLVER.IMS_PER_BATCH"] == 6 and values["SOLVER.MAX_ITER"] == 80000
    assert values["INPUT.MIN_SIZE_TRAIN"] == (600,)
    assert values["SOLVER.AMP.ENABLED"] is False  # a switch that is off unless it is given
    assert values["MODEL.MASK_ON"] is True and values["SOLVER.STEPS"] == (5, 6)
    assert list(config.unknown) == ["MODEL.RESNETS.DEPTH"]
    assert "train_net.py:14: MODEL.RESNETS.DEPTH depends on «args.big»" in config.unknown["MODEL.RESNETS.DEPTH"]
    assert config.notes == (f"{tmp_path / 'train_net.py'}: its arguments are taken at their defaults: --batch 6",)


def test_what_comes_from_the_command_line_is_said(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        """
        def setup(args):
            cfg = get_cfg()
            add_pointrend_config(cfg)
            cfg.merge_from_file(args.config_file)
            cfg.merge_from_list(args.opts)
            cfg.merge_from_list(extra)
            return cfg
        """,
    )
    assert "which config file args.config_file is" in config.lost and config.lost.endswith("--config-file FILE")
    assert "add_pointrend_config adds keys and code of a project" in "\n".join(config.guesses)
    assert set(config.unknown) == set(DEFAULTS)


def test_a_default_of_the_config_file_is_taken(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("SOLVER:\n  IMS_PER_BATCH: 3\n")
    config = config_of(
        tmp_path,
        """
        parser.add_argument("--config-file", default="mine.yaml")
        args = parser.parse_args()
        cfg = get_cfg()
        cfg.merge_from_file(args.config_file)
        """,
    )
    assert config.values["SOLVER.IMS_PER_BATCH"] == 3
    assert config.origins["SOLVER.IMS_PER_BATCH"].file.endswith("mine.yaml")


def test_a_config_of_a_class_and_copies(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        f"""
        class Training:
            def __init__(self):
                self.cfg = model_zoo.get_config("{MASK}", trained=True)
                self.cfg.SOLVER.IMS_PER_BATCH = 4
                other = self.cfg.clone()
                other.SOLVER.IMS_PER_BATCH = 8
                self.trainer = MyTrainer(other)
        """,
    )
    assert config.values["SOLVER.IMS_PER_BATCH"] == 8 and config.values["MODEL.MASK_ON"] is True
    assert any("1 more config" in note for note in config.notes)


def test_types_sections_and_keys_of_ones_own(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        """
        cfg = get_cfg()
        cfg.SOLVER.BASE_LR = 1
        cfg.SOLVER.IMS_PER_BATCH = "8"
        cfg.SOLVER.AMP = True
        cfg.MINE = CN()
        cfg.SOLVER.PATIENCE = 3
        wait = cfg.SOLVER.PATIENCE
        """,
    )
    assert config.values["SOLVER.BASE_LR"] == 1.0
    assert "SOLVER.IMS_PER_BATCH must be a whole number" in config.unknown["SOLVER.IMS_PER_BATCH"]
    told = "\n".join(config.notes)
    assert "SOLVER.AMP is a section" in told
    assert "SOLVER.PATIENCE is not a key of Detectron2; the script reads it itself" in told
    assert "MINE" not in told


def test_merging_what_does_not_exist_is_refused_as_detectron2_does(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train_net.py:3: SOLVER.ACCUMULATION_STEPS does not exist"):
        config_of(tmp_path, "\ncfg = get_cfg()\ncfg.merge_from_list(['SOLVER.ACCUMULATION_STEPS', 4])\n")


def test_overrides_stand_for_what_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("cfg = get_cfg()\ncfg.SOLVER.IMS_PER_BATCH = int(input())\n")
    job = open_job(str(path), ("SOLVER.IMS_PER_BATCH", "2"))
    assert isinstance(job, Detectron2Job)
    assert job.config.values["SOLVER.IMS_PER_BATCH"] == 2
    assert job.place == tmp_path / "train.fitted.yaml"


def test_other_files_are_no_scripts(tmp_path: Path) -> None:
    for text in ("cfg = load()\n", "cfg = get_config()\n", "def job(:\n", "\0"):
        path = tmp_path / "other.py"
        path.write_text(text)
        assert not is_script(path)
        with pytest.raises(
            InputError, match="which function" if "cfg" in text else r"other.py(:1)?: this is no Python"
        ):
            open_job(str(path))
    assert not is_script(tmp_path / "none.py")
    with pytest.raises(InputError, match="makes no config"):
        config_of(tmp_path, "later = lambda: get_cfg()\n")


def test_recursion_ends(tmp_path: Path) -> None:
    config = config_of(tmp_path, "def a(cfg):\n    b(cfg)\ndef b(cfg):\n    a(cfg)\ncfg = get_cfg()\na(cfg)\n")
    assert config.values == DEFAULTS


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("SOLVER.ACCUMULATION_STEPS", "accumulation"),
        ("SOLVER.ACCUMULATE_GRAD_ITER", "accumulation"),
        ("SOLVER.GRAD_ACCUM_ITERS", "accumulation"),
        ("SOLVER.GRADIENT_ACCUMULATION_STEPS", "accumulation"),
        ("MODEL.BACKBONE.USE_CHECKPOINT", "checkpoint_stages"),
        ("SOLVER.FP16", "SOLVER.AMP.ENABLED"),
        ("SOLVER.BATCH_SIZE", "SOLVER.IMS_PER_BATCH"),
        ("DATALOADER.BATCH_SIZE", "SOLVER.IMS_PER_BATCH"),
        ("SOLVER.NUM_EPOCHS", "SOLVER.MAX_ITER"),
        ("DATALOADER.PREFETCH_FACTOR", "build_detection_train_loader"),
        ("DATALOADER.PIN_MEMORY", "build_detection_train_loader"),
        ("SOLVER.OPTIMIZER", "SGD"),
        ("SOLVER.OPTIMIZER_NAME", "SGD"),
        ("INPUT.IMAGE_SIZE", "INPUT.MIN_SIZE_TRAIN"),
        ("SOLVER.LR", "SOLVER.BASE_LR"),
        ("SOLVER.GRAD_CLIP", "SOLVER.CLIP_GRADIENTS.ENABLED"),
        ("MODEL.NUM_CLASSES", "MODEL.ROI_HEADS.NUM_CLASSES"),
        ("NUM_GPUS", "launch"),
        ("TEST.IMS_PER_BATCH", "one image"),
        ("DATALOADER.WORKERS", "DATALOADER.NUM_WORKERS"),
    ],
)
def test_inventions(key: str, said: str) -> None:
    assert key not in DEFAULTS
    assert said in advice(key)


def test_no_real_key_is_called_an_invention() -> None:
    """They are asked for only where a key is unknown; a rule that fits a real one would still be a bad rule."""
    assert [key for key in DEFAULTS if advice(key)] == []


def test_a_published_config_of_a_script_is_the_zoos(tmp_path: Path) -> None:
    config = config_of(tmp_path, f"cfg = get_cfg()\ncfg.merge_from_file(model_zoo.get_config_file('{MASK}'))\n")
    assert config.values == read(MASK).values
    assert config.notes == ()
