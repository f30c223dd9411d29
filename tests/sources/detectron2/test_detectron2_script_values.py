"""Values that travel through a script before they reach its config; and what nobody can know, which must be given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.sources import open_job
from oomproof.sources.detectron2.config.schema import DEFAULTS
from oomproof.sources.detectron2.job import Detectron2Job
from oomproof.sources.detectron2.script.script import open_script
from oomproof.sources.settings import resolve

MASK = "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x.yaml"


def opened(folder: Path, text: str, *overrides: str, config_file: str = "") -> Detectron2Job:
    path = folder / "train_net.py"
    path.write_text(dedent(text), encoding="utf-8")
    return open_script(path, overrides, config_file)


def settings_of(folder: Path, text: str, *overrides: str, **given: Any) -> Mapping[str, Any]:
    return resolve(opened(folder, text, *overrides), given)


WAYS = {
    "defaults": """
        def configure(batch_size=4, workers=2):
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH = batch_size
            cfg.DATALOADER.NUM_WORKERS = workers
            return cfg
        DefaultTrainer(configure(batch_size=8)).train()
        """,
    "levels": """
        def inner(cfg, *, batch, **more):
            cfg.SOLVER.IMS_PER_BATCH = batch
            cfg.DATALOADER.NUM_WORKERS = more["workers"]
        def outer(cfg, size, **options):
            inner(cfg, batch=size * 2, **options)
        def main():
            cfg = get_cfg()
            outer(cfg, 4, workers=2)
            return DefaultTrainer(cfg)
        main()
        """,
    "stars": """
        def configure(*sizes, **words):
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH, cfg.DATALOADER.NUM_WORKERS = sizes[0], words.get("workers", 9)
            return cfg
        numbers, options = [8, 16], dict(workers=2)
        trainer = DefaultTrainer(configure(*numbers, **options))
        """,
    "class attributes": """
        class Settings:
            BATCH = 8
            WORKERS = BATCH // 4
        def main(s=Settings):
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH = s.BATCH
            cfg.DATALOADER.NUM_WORKERS = s.WORKERS
            DefaultTrainer(cfg).train()
        if __name__ == "__main__":
            main()
        """,
    "dataclass": """
        from dataclasses import dataclass, field, replace
        @dataclass
        class Settings:
            batch: int
            workers: int = field(default=4)
            sizes: tuple = (800,)
            @property
            def doubled(self):
                return 2 * self.batch
        def setup(settings: Settings):
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH = settings.doubled
            cfg.DATALOADER.NUM_WORKERS = settings.workers
            return cfg
        DefaultTrainer(setup(replace(Settings(4), workers=2))).train()
        """,
    "partial": """
        import functools
        def configure(cfg, batch, workers):
            cfg.SOLVER.IMS_PER_BATCH = batch
            cfg.DATALOADER.NUM_WORKERS = workers
            return cfg
        eight = functools.partial(configure, batch=8)
        trainer = DefaultTrainer(eight(get_cfg(), workers=2))
        """,
    "argparse": """
        import argparse
        USUAL = 8
        def parse():
            parser = argparse.ArgumentParser()
            parser.add_argument("-b", "--batch-size", type=int, default=USUAL)
            parser.add_argument("--workers", type=int)
            return parser.parse_args()
        def setup(args):
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH = args.batch_size
            cfg.DATALOADER.NUM_WORKERS = args.workers or 2
            return cfg
        def main(options):
            DefaultTrainer(setup(options)).train()
        main(parse())
        """,
    "conditions": """
        FAST = True
        def batch(fast):
            if fast:
                return 8
            return 4
        cfg = get_cfg()
        cfg.SOLVER.IMS_PER_BATCH = batch(FAST)
        cfg.DATALOADER.NUM_WORKERS = 2 if FAST else 8
        DefaultTrainer(cfg)
        """,
    "objects": """
        class Experiment:
            workers = 4
            def __init__(self, batch=4):
                self.batch = batch
                self.cfg = get_cfg()
            def configure(self):
                self.cfg.SOLVER.IMS_PER_BATCH = self.batch
                self.cfg.DATALOADER.NUM_WORKERS = self.workers // 2
                return self
            def run(self):
                DefaultTrainer(self.cfg).train()
        Experiment(batch=8).configure().run()
        """,
    "globals": """
        cfg = get_cfg()
        SIZES = {"small": 2, "large": 8}
        def configure(name):
            cfg.SOLVER.IMS_PER_BATCH = SIZES[name]
            for key, value in (("NUM_WORKERS", 2), ("ASPECT_RATIO_GROUPING", True)):
                setattr(cfg.DATALOADER, key, value)
        configure("large")
        DefaultTrainer(cfg)
        """,
    "lists of keys": """
        def merge(cfg, **keys):
            for name, value in keys.items():
                cfg.merge_from_list([name.replace("__", "."), value])
        cfg = get_cfg()
        merge(cfg, SOLVER__IMS_PER_BATCH=8, DATALOADER__NUM_WORKERS=2)
        DefaultTrainer(cfg)
        """,
    "both ways the same": """
        cfg = get_cfg()
        if unheard_of():
            cfg.SOLVER.IMS_PER_BATCH = 8
        else:
            cfg.SOLVER.IMS_PER_BATCH = 4 + 4
        try:
            cfg.DATALOADER.NUM_WORKERS = 2
        except Exception:
            raise SystemExit("no")
        if not os.path.exists("data"):
            sys.exit(1)
        DefaultTrainer(cfg)
        """,
    "a trainer of one's own": """
        class Trainer(DefaultTrainer):
            def __init__(self, cfg, batch):
                cfg = cfg.clone()
                cfg.SOLVER.IMS_PER_BATCH = batch
                super().__init__(cfg)
            @classmethod
            def build_evaluator(cls, cfg, name):
                return None
        cfg = get_cfg()
        cfg.DATALOADER.NUM_WORKERS = 2
        Trainer(cfg, batch=8).train()
        """,
}


@pytest.mark.parametrize("way", WAYS)
def test_values_are_followed(way: str, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, WAYS[way])
    assert (settings["SOLVER.IMS_PER_BATCH"], settings["workers"]) == (8, 2)


def test_a_file_beside_the_script_is_followed(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(
        "BATCH = 8\ndef apply(cfg, workers=2):\n    cfg.DATALOADER.NUM_WORKERS = workers\n"
    )
    text = """
        import settings
        from settings import BATCH as size
        cfg = get_cfg()
        cfg.SOLVER.IMS_PER_BATCH = size
        settings.apply(cfg)
        DefaultTrainer(cfg)
        """
    found = settings_of(tmp_path, text)
    assert (found["SOLVER.IMS_PER_BATCH"], found["workers"]) == (8, 2)


UNKNOWN = {
    "int(os.environ.get('BATCH', 4))": "os.environ",
    "args.batch": "args.batch",
    "2 * torch.cuda.device_count()": "device_count",
    "json.load(open('settings.json'))['batch']": "json.load",
    "8 if socket.gethostname() == 'big' else 4": "gethostname",
    "pick(args.size)": "args.size",
    "'8'": "must be a whole number",
    "None": "None",
}


@pytest.mark.parametrize("value", UNKNOWN)
def test_a_batch_that_nobody_knows_must_be_given(value: str, tmp_path: Path) -> None:
    text = f"""
        def pick(size):
            if size == "big":
                return 8
            return 4
        cfg = get_cfg()
        cfg.SOLVER.IMS_PER_BATCH = {value}
        cfg.SOLVER.BASE_LR = args.lr
        DefaultTrainer(cfg)
        """
    with pytest.raises(InputError) as caught:
        settings_of(tmp_path, text)
    said = str(caught.value)
    assert "train_net.py:7: SOLVER.IMS_PER_BATCH" in said and UNKNOWN[value] in said
    assert said.endswith("give it behind the job: SOLVER.IMS_PER_BATCH VALUE")
    assert settings_of(tmp_path, text, "SOLVER.IMS_PER_BATCH", "6")["SOLVER.IMS_PER_BATCH"] == 6
    assert settings_of(tmp_path, text, batch="6")["SOLVER.IMS_PER_BATCH"] == 6


def test_every_key_that_must_be_given_is_named_at_once(tmp_path: Path) -> None:
    text = """
        cfg = get_cfg()
        if args.big:
            cfg.MODEL.RESNETS.DEPTH = 101
            cfg.MODEL.RESNETS.RES5_DILATION = 2
        cfg.MODEL.ROI_MASK_HEAD.NUM_CONV = args.convs    # there are no masks
        cfg.INPUT.MIN_SIZE_TEST = args.size
        DefaultTrainer(cfg)
        """
    with pytest.raises(InputError, match="depends on «args") as caught:
        settings_of(tmp_path, text)
    assert str(caught.value).endswith("MODEL.RESNETS.DEPTH VALUE MODEL.RESNETS.RES5_DILATION VALUE")


def test_the_config_file_of_the_command_line(tmp_path: Path) -> None:
    text = """
        def setup(args):
            cfg = get_cfg()
            cfg.merge_from_file(args.config_file)
            cfg.merge_from_list(args.opts)
            cfg.SOLVER.BASE_LR = 0.01 if cfg.SOLVER.IMS_PER_BATCH > 4 else 0.001
            return cfg
        def main(args):
            return Trainer(setup(args)).train()
        if __name__ == "__main__":
            args = default_argument_parser().parse_args()
            launch(main, args.num_gpus, args=(args,))
        """
    with pytest.raises(InputError, match=r"train_net.py:4: which config file args.config_file is.*--config-file FILE$"):
        opened(tmp_path, text)
    file = tmp_path / "mine.yaml"
    file.write_text("SOLVER:\n  IMS_PER_BATCH: 4\n")
    job = opened(tmp_path, text, config_file=str(file))
    assert job.config.values["SOLVER.IMS_PER_BATCH"] == 4 and job.config.values["SOLVER.BASE_LR"] == 0.001
    assert job.config.unknown == {}
    job = opened(tmp_path, text, "SOLVER.IMS_PER_BATCH", "8", config_file=MASK)
    assert job.config.values["SOLVER.BASE_LR"] == 0.01 and job.config.values["MODEL.MASK_ON"] is True
    with pytest.raises(InputError, match="there is no file"):
        opened(tmp_path, text, config_file="absent.yaml")


def test_the_gpus_of_the_command_line_are_those_that_are_given(tmp_path: Path) -> None:
    path = tmp_path / "train_net.py"
    path.write_text(
        "args = default_argument_parser().parse_args()\ncfg = get_cfg()\n"
        "cfg.SOLVER.IMS_PER_BATCH = 2 * args.num_gpus\nDefaultTrainer(cfg).train()\n"
    )
    for given, batch in (({}, 2), ({"gpus": "4"}, 8), ({"gpus": 8}, 16)):
        job = open_job(str(path), given=given)
        assert isinstance(job, Detectron2Job) and job.config.values["SOLVER.IMS_PER_BATCH"] == batch


TRAININGS = {
    "loop": """
        for batch in (2, 4, 8):
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH = batch
            DefaultTrainer(cfg).train()
        """,
    "calls": """
        def train(batch):
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH = batch
            trainer = DefaultTrainer(cfg)
            trainer.resume_or_load(resume=False)
            return trainer.train()
        train(2)
        train(batch=4)
        train(8)
        """,
    "phases": """
        cfg = get_cfg()
        cfg.SOLVER.IMS_PER_BATCH = 2
        DefaultTrainer(cfg).train()
        cfg.SOLVER.IMS_PER_BATCH = 4
        trainer = DefaultTrainer(cfg)
        trainer.train()
        cfg.SOLVER.IMS_PER_BATCH = 8
        DefaultTrainer(cfg).train()
        """,
}


@pytest.mark.parametrize("way", TRAININGS)
def test_what_differs_between_trainings_of_one_script_has_to_be_given(way: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"IMS_PER_BATCH depends on which of the script's 3 trainings.* give it"):
        settings_of(tmp_path, TRAININGS[way])
    assert settings_of(tmp_path, TRAININGS[way], "SOLVER.IMS_PER_BATCH", "8")["SOLVER.IMS_PER_BATCH"] == 8


def test_what_trainings_of_one_script_have_in_common_is_known(tmp_path: Path) -> None:
    text = """
        for fold in range(5):
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH = 6
            cfg.OUTPUT_DIR = f"fold{fold}"
            DefaultTrainer(cfg).train()
        cfg.SOLVER.IMS_PER_BATCH = 1
        cfg.merge_from_file("of the evaluation.yaml")
        """
    assert settings_of(tmp_path, text)["SOLVER.IMS_PER_BATCH"] == 6


def test_an_option_without_a_default_is_asked_for(tmp_path: Path) -> None:
    text = (
        "parser = argparse.ArgumentParser()\nparser.add_argument('--config-file')\nargs = parser.parse_args()\n"
        "cfg = get_cfg()\ncfg.merge_from_file(args.config_file)\nDefaultTrainer(cfg)\n"
    )
    with pytest.raises(InputError, match=r":5: which config file args.config_file is.*--config-file FILE$"):
        opened(tmp_path, text)
    assert opened(tmp_path, text, config_file=MASK).config.values["MODEL.MASK_ON"]


def test_a_config_file_that_nothing_merges_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="merges no file that its command line names"):
        opened(tmp_path, "cfg = get_cfg()\nDefaultTrainer(cfg)\n", config_file=MASK)


def test_a_config_file_wins_over_the_argument_of_the_script(tmp_path: Path) -> None:
    text = f"""
        parser.add_argument("--config", default="{MASK}")
        cfg = get_cfg()
        cfg.merge_from_file(parser.parse_args().config)
        DefaultTrainer(cfg)
        """
    assert opened(tmp_path, text).config.values["MODEL.MASK_ON"] is True
    other = opened(tmp_path, text, config_file="COCO-Detection/retinanet_R_50_FPN_1x.yaml")
    assert other.config.values["MODEL.META_ARCHITECTURE"] == "RetinaNet"


def test_a_trainer_whose_config_comes_from_elsewhere(tmp_path: Path) -> None:
    text = """
        from project import load
        def predict():
            return DefaultPredictor(get_cfg())
        DefaultTrainer(load()).train()
        """
    with pytest.raises(InputError, match="DefaultTrainer gets a config that is made elsewhere"):
        opened(tmp_path, text)


def test_gpus_of_the_launcher(tmp_path: Path) -> None:
    text = """
        def main(args):
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH = 8
            DefaultTrainer(cfg).train()
        launch(main, {gpus}, args=(parse(),))
        """
    assert settings_of(tmp_path, text.format(gpus=4))["gpus"] == 4
    assert settings_of(tmp_path, text.format(gpus="num_gpus_per_machine=2"))["ddp"] is True
    with pytest.raises(InputError, match=r"the number of GPUs, .*device_count.*--gpus N"):
        settings_of(tmp_path, text.format(gpus="torch.cuda.device_count()"))
    assert settings_of(tmp_path, text.format(gpus="torch.cuda.device_count()"), gpus="2")["gpus"] == 2


def test_a_loop_that_never_ends_is_given_up(tmp_path: Path) -> None:
    text = (
        "cfg = get_cfg()\ndef f(n):\n    return [f(n - 1) + f(n - 2) for _ in range(500)]\nf(30)\nDefaultTrainer(cfg)\n"
    )
    with pytest.raises(InputError, match="does too much to be followed"):
        opened(tmp_path, text)


def test_what_runs_never(tmp_path: Path) -> None:
    text = """
        cfg = get_cfg()
        if args.eval_only:
            cfg.SOLVER.IMS_PER_BATCH = 1
            DefaultTrainer(cfg)
        x = [i for i in range(10**9)] + ["a" * 10**9] + [9**9**9]
        while True:
            cfg.SOLVER.IMS_PER_BATCH = 8
            break
        DefaultTrainer(cfg)
        """
    assert opened(tmp_path, text).config.values == {**DEFAULTS, "SOLVER.IMS_PER_BATCH": 8}
