"""Scripts of whole projects: packages and keys of their own, notebooks that were exported, files that a run names."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from oomproof.errors import InputError
from oomproof.sources import open_job
from oomproof.sources.detectron2.job import Detectron2Job
from oomproof.sources.detectron2.script.script import is_script, read_script
from oomproof.sources.settings import resolve

MASK = "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x.yaml"


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Writes the files; the first one is the script."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return folder / next(iter(files))


def opened(folder: Path, files: Mapping[str, str], *overrides: str, config_file: str = "") -> Detectron2Job:
    job = open_job(str(write(folder, files)), overrides, {}, config_file)
    assert isinstance(job, Detectron2Job)
    return job


EXPORTED = """
    # -*- coding: utf-8 -*-
    !python -m pip install \\
        fvcore
    # Commented out IPython magic to ensure Python compatibility.
    # %run demo.py --video clip.mp4 \\
      --opts MODEL.DEVICE cpu
    %matplotlib inline
    folders = !ls
    from detectron2.config import get_cfg
    from detectron2 import model_zoo
    cfg = get_cfg()
    cfg.merge_from_file(model_zoo.get_config_file("{mask}"))
    sizes = {{
        "batch": 6,
        # is that too many?
    }}
    print("a batch of %d"
          % sizes["batch"])
    cfg.SOLVER.IMS_PER_BATCH = sizes["batch"]
    cfg?
    DefaultTrainer(cfg).train()
    """


def test_a_notebook_that_was_exported_to_python(tmp_path: Path) -> None:
    job = opened(tmp_path, {"train.py": EXPORTED.format(mask=MASK)})
    assert job.config.values["SOLVER.IMS_PER_BATCH"] == 6 and job.config.values["MODEL.MASK_ON"] is True
    assert job.config.origins["SOLVER.IMS_PER_BATCH"].line == 20


def test_very_many_lines_of_a_notebook_take_no_time(tmp_path: Path) -> None:
    code = "cfg = get_cfg()\ncfg.SOLVER.IMS_PER_BATCH = 6\nDefaultTrainer(cfg).train()\n"
    (tmp_path / "many.py").write_text("!ls\n" * 20_000 + code)
    (tmp_path / "more.py").write_text("%cd x\n" * 200_000 + code)
    start = time.monotonic()
    assert read_script(tmp_path / "many.py").values["SOLVER.IMS_PER_BATCH"] == 6
    assert not is_script(tmp_path / "more.py")
    assert time.monotonic() - start < 30


def test_a_script_whose_helper_makes_the_config(tmp_path: Path) -> None:
    files = {
        "train.py": """
            import argparse
            import helper
            parser = argparse.ArgumentParser()
            parser.add_argument("--batch-size", default=6)
            args = parser.parse_args()
            helper.train(batch=int(args.batch_size))
            """,
        "helper.py": """
            from detectron2.config import get_cfg as new_config
            from detectron2.engine import DefaultTrainer

            def train(batch):
                cfg = new_config()
                cfg.SOLVER.IMS_PER_BATCH = batch
                DefaultTrainer(cfg).train()
            """,
    }
    assert opened(tmp_path, files).config.values["SOLVER.IMS_PER_BATCH"] == 6
    other = write(
        tmp_path, {"other.py": "import plain\nplain.train()\n", "plain.py": "def get_cfg(): ...\nget_cfg()\n"}
    )
    assert not is_script(other)


PROJECT = {
    "tools/train_net.py": """
        from detectron2.config import get_cfg
        from detectron2.engine import DefaultTrainer, default_argument_parser
        from mine import add_mine_config

        def main(args):
            cfg = get_cfg()
            add_mine_config(cfg)
            cfg.merge_from_file(args.config_file)
            DefaultTrainer(cfg).train()

        main(default_argument_parser().parse_args())
        """,
    "mine/__init__.py": "from .config import add_mine_config\n",
    "mine/config.py": """
        from detectron2.config import CfgNode as CN

        def add_mine_config(cfg):
            cfg.MODEL.BRANCHES = CN()
            cfg.MODEL.BRANCHES.NUMBER = 3
            cfg.SOLVER.LABELLED = 8
            cfg.MODEL.RESNETS.DEPTH = 101
        """,
}
OWN_KEYS = "MODEL:\n  BRANCHES:\n    NUMBER: 2\nSOLVER:\n  LABELLED: 4\n  IMS_PER_BATCH: 6\n"


def test_keys_that_a_project_adds_are_taken_in_its_files_and_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(OWN_KEYS)
    config = opened(tmp_path, PROJECT, config_file=str(file)).config
    assert config.values["SOLVER.IMS_PER_BATCH"] == 6 and config.values["MODEL.RESNETS.DEPTH"] == 101
    assert any("mine.yaml:3: MODEL.BRANCHES.NUMBER, SOLVER.LABELLED: for code that" in note for note in config.notes)
    assert not any("does nothing" in note for note in config.notes)
    assert any("add_mine_config adds keys for code" in guess for guess in config.guesses)  # so nothing is written
    file.write_text(OWN_KEYS.replace("LABELLED", "LABELED"))
    with pytest.raises(InputError, match=r"SOLVER.LABELED does not exist in Detectron2"):
        opened(tmp_path, PROJECT, config_file=str(file))
    with pytest.raises(
        InputError, match=r"NUMBER does not .*LABELED does not .*train_net.py --config-file .*mine.yaml$"
    ):
        open_job(str(file))


def test_keys_of_a_project_that_is_not_here(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(OWN_KEYS)
    more = "cfg.SOLVER.POLY = 0.9\n            cfg.merge_from_file"
    script = {"train_net.py": PROJECT["tools/train_net.py"].replace("cfg.merge_from_file", more)}
    config = opened(tmp_path, script, config_file=str(file)).config
    assert config.values["SOLVER.IMS_PER_BATCH"] == 6
    assert any("add_mine_config adds keys and code of a project" in guess for guess in config.guesses)
    assert any("SOLVER.POLY is not a key of Detectron2, but perhaps one of the project's" in it for it in config.notes)


@pytest.mark.parametrize(
    "line", ["cfg.set_new_allowed(True)", "cfg.MODEL.BRANCHES = CN()", "cfg.setdefault('MODEL.BRANCHES', 1)"]
)
def test_keys_that_the_script_adds_itself(line: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("MODEL:\n  BRANCHES:\n    NUMBER: 2\nSOLVER:\n  IMS_PER_BATCH: 6\n")
    text = f"cfg = get_cfg()\n{line}\ncfg.merge_from_file('mine.yaml')\nDefaultTrainer(cfg).train()\n"
    assert opened(tmp_path, {"train.py": text}).config.values["SOLVER.IMS_PER_BATCH"] == 6
    with pytest.raises(InputError, match=r"MODEL.BRANCHES.NUMBER does not exist"):
        opened(tmp_path, {"train.py": text.replace(line, "")})


def test_a_project_that_takes_the_defaults_of_detectron2(tmp_path: Path) -> None:
    files = {
        "train_net.py": """
            from detectron2.engine import DefaultTrainer
            from mine.config import get_cfg
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH = 6
            DefaultTrainer(cfg).train()
            """,
        "mine/__init__.py": "",
        "mine/config.py": """
            from detectron2.config.defaults import _C
            _C.MODEL.BRANCHES = 3
            _C.MODEL.RESNETS.DEPTH = 101

            def get_cfg():
                return _C.clone()
            """,
    }
    config = opened(tmp_path, files).config
    assert config.values["SOLVER.IMS_PER_BATCH"] == 6 and config.values["MODEL.RESNETS.DEPTH"] == 101
    assert any("mine/config.py: the project adds keys" in guess for guess in config.guesses)


def test_a_config_of_other_code_is_a_guess(tmp_path: Path) -> None:
    text = "from elsewhere.config import get_cfg\ncfg = get_cfg()\nDefaultTrainer(cfg).train()\n"
    assert any("get_cfg of elsewhere adds keys" in guess for guess in opened(tmp_path, {"a.py": text}).config.guesses)


def test_a_script_in_a_clone_of_detectron2(tmp_path: Path) -> None:
    files = {
        "train.py": """
            from detectron2.config import get_cfg
            from detectron2.engine import DefaultTrainer
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH = 6
            DefaultTrainer(cfg).train()
            """,
        "detectron2/config/__init__.py": "from .compat import get_cfg\n",
        "detectron2/config/compat.py": "def get_cfg():\n    from .inner import _C\n    return _C.clone()\n",
        "detectron2/engine/__init__.py": "class DefaultTrainer:\n    def __init__(self, cfg): ...\n",
    }
    assert opened(tmp_path, files).config.values["SOLVER.IMS_PER_BATCH"] == 6


def test_a_star_import_does_not_bring_the_name_of_the_other_module(tmp_path: Path) -> None:
    files = {
        "train.py": """
            from options import *
            def other(batch=1):
                train(batch)
            def train(batch):
                cfg = get_cfg()
                cfg.SOLVER.IMS_PER_BATCH = batch
                DefaultTrainer(cfg).train()
            if __name__ == "__main__":
                train(BATCH)
            """,
        "options.py": "BATCH = 6\n_HIDDEN = 3\n",
    }
    assert opened(tmp_path, files).config.values["SOLVER.IMS_PER_BATCH"] == 6


@pytest.mark.parametrize("condition", ["args.train", "args.mode == 'train'", "args.data"])
def test_a_training_that_needs_an_option(condition: str, tmp_path: Path) -> None:
    text = f"""
        parser = argparse.ArgumentParser()
        parser.add_argument("--train", action="store_true")
        parser.add_argument("--mode", choices=["train", "show"], default="show")
        parser.add_argument("--data")
        args = parser.parse_args()
        cfg = get_cfg()
        if {condition}:
            cfg.SOLVER.IMS_PER_BATCH = 6
            DefaultTrainer(cfg).train()
        """
    assert opened(tmp_path, {"train.py": text}).config.values["SOLVER.IMS_PER_BATCH"] == 6


def test_a_script_that_ends_where_an_option_is_not_given(tmp_path: Path) -> None:
    text = """
        parser = argparse.ArgumentParser()
        parser.add_argument("--data")
        parser.add_argument("--batch", type=int)
        args = parser.parse_args()
        if args.data is None:
            raise SystemExit("--data must be given")
        cfg = get_cfg()
        cfg.SOLVER.IMS_PER_BATCH = 6
        cfg.DATALOADER.NUM_WORKERS = args.batch
        DefaultTrainer(cfg).train()
        """
    job = opened(tmp_path, {"train.py": text})
    assert job.config.values["SOLVER.IMS_PER_BATCH"] == 6
    with pytest.raises(InputError, match=r"DATALOADER.NUM_WORKERS = args.batch is not known"):
        resolve(job, {})


FILES = {
    "two ways": """
        def load(args):
            cfg = get_cfg()
            if args.fast:
                cfg.merge_from_file(args.fast_yaml)
            else:
                cfg.merge_from_file(args.slow_yaml)
            return cfg
        DefaultTrainer(load(args)).train()
        """,
    "one function for two configs": """
        def load(name):
            cfg = get_cfg()
            cfg.merge_from_file(name)
            return cfg
        load(sys.argv[1])
        DefaultTrainer(load(sys.argv[1])).train()
        """,
}


@pytest.mark.parametrize("way", FILES)
def test_one_file_is_enough(way: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("SOLVER:\n  IMS_PER_BATCH: 6\n")
    job = opened(tmp_path, {"train.py": FILES[way]}, config_file=str(tmp_path / "mine.yaml"))
    assert job.config.values["SOLVER.IMS_PER_BATCH"] == 6


def test_two_files_one_after_the_other_are_not_one(tmp_path: Path) -> None:
    text = """
        cfg = get_cfg()
        for name in sys.argv[1:3]:
            cfg.merge_from_file(name)
        cfg.merge_from_file(sys.argv[3])
        DefaultTrainer(cfg).train()
        """
    with pytest.raises(InputError, match="give a second file by KEY VALUE"):
        opened(tmp_path, {"train.py": text}, config_file=MASK)


LEFT_OUT = """
    from detectron2.config import get_cfg
    args = default_argument_parser().parse_args()
    cfg = get_cfg()
    {before}
    if args.config_file:
        cfg.merge_from_file(args.config_file)
    cfg.SOLVER.IMS_PER_BATCH = 6
    DefaultTrainer(cfg).train()
    """


def test_a_file_without_which_nothing_is_trained_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"args.config_file is.*give it: --config-file FILE$"):
        opened(tmp_path, {"train.py": LEFT_OUT.format(before="")})
    assert opened(tmp_path, {"train.py": LEFT_OUT.format(before="")}, config_file=MASK).config.values["MODEL.MASK_ON"]
    other = LEFT_OUT.format(before=f"cfg.merge_from_file('{MASK}')")  # to be put over a file of the script's own
    assert opened(tmp_path, {"train.py": other}).config.values["MODEL.MASK_ON"]


SCALED = """
    class Mine(DefaultTrainer):
        def __init__(self, cfg):
            cfg = DefaultTrainer.auto_scale_workers(cfg, comm.get_world_size())
            model = self.build_model(cfg)
            self._trainer = SimpleTrainer(model, self.build_train_loader(cfg), self.build_optimizer(cfg, model))

    cfg = get_cfg()
    cfg.merge_from_file(args.config_file)
    cfg.SOLVER.IMS_PER_BATCH = 6
    Mine(cfg).train()
    """


def test_a_trainer_that_scales_its_config_as_detectron2s_does(tmp_path: Path) -> None:
    assert opened(tmp_path, {"a.py": SCALED}, config_file=MASK).config.values["SOLVER.IMS_PER_BATCH"] == 6
    with pytest.raises(InputError, match=r"give it: --config-file FILE$"):
        opened(tmp_path, {"a.py": SCALED})


def test_a_config_changed_as_a_dict(tmp_path: Path) -> None:
    text = """
        cfg = get_cfg()
        cfg.setdefault("LOG_PERIOD", 20)
        cfg.SOLVER.setdefault("IMS_PER_BATCH", 32)
        cfg.SOLVER.update({"IMS_PER_BATCH": 6, "BASE_LR": 0.1})
        cfg.pop("LOG_PERIOD")
        DefaultTrainer(cfg).train()
        """
    config = opened(tmp_path, {"a.py": text}).config
    assert config.values["SOLVER.IMS_PER_BATCH"] == 6 and config.values["SOLVER.BASE_LR"] == 0.1 and not config.unknown
    lost = text.replace('pop("LOG_PERIOD")', "pop(name)")
    with pytest.raises(InputError, match="takes keys from elsewhere"):
        opened(tmp_path, {"a.py": lost})


def test_long_lists_are_data(tmp_path: Path) -> None:
    names = ", ".join(f"{{'id': {number}, 'name': 'thing {number}'}}" for number in range(30_000))
    text = f"names = [{names}]\ncfg = get_cfg()\ncfg.SOLVER.IMS_PER_BATCH = 6\nDefaultTrainer(cfg).train()\n"
    (tmp_path / "a.py").write_text(text)
    assert read_script(tmp_path / "a.py").values["SOLVER.IMS_PER_BATCH"] == 6


def test_a_file_of_another_machine_can_be_given(tmp_path: Path) -> None:
    text = """
        cfg = get_cfg()
        cfg.merge_from_file("/elsewhere/runs/mine.yaml")
        cfg.SOLVER.IMS_PER_BATCH = 6
        DefaultTrainer(cfg).train()
        """
    with pytest.raises(InputError, match=r"there is no file /elsewhere/runs/mine.yaml.*give it: --config-file FILE$"):
        opened(tmp_path, {"a.py": text})
    config = opened(tmp_path, {"a.py": text}, config_file=MASK).config
    assert config.values["MODEL.MASK_ON"] is True and config.values["SOLVER.IMS_PER_BATCH"] == 6


@pytest.mark.parametrize("condition", ["True", "unknown()"])
def test_a_global_name_on_one_of_two_ways(condition: str, tmp_path: Path) -> None:
    text = f"""
        def make():
            if {condition}:
                global cfg
                cfg = get_cfg()
                cfg.SOLVER.IMS_PER_BATCH = 6
            seen = cfg.SOLVER
        cfg = None
        make()
        DefaultTrainer(cfg).train()
        """
    if condition == "True":
        assert opened(tmp_path, {"a.py": text}).config.values["SOLVER.IMS_PER_BATCH"] == 6
    else:  # perhaps none is made
        with pytest.raises(InputError, match="DefaultTrainer gets a config that is made elsewhere"):
            opened(tmp_path, {"a.py": text})


@pytest.mark.parametrize(
    ("trainer", "guessed"), [("detectron2.engine.DefaultTrainer", 0), ("far.engine.FarTrainer", 1)]
)
def test_a_trainer_of_other_code_is_a_guess(trainer: str, guessed: int, tmp_path: Path) -> None:
    module, _, name = trainer.rpartition(".")
    text = f"from {module} import {name}\ncfg = get_cfg()\n{name}(cfg).train()\n"
    guesses = opened(tmp_path, {"a.py": text}).config.guesses
    assert len(guesses) == guessed and all("FarTrainer of far.engine is a trainer that is not" in it for it in guesses)


def test_a_script_that_runs_without_detectron2_too(tmp_path: Path) -> None:
    text = """
        try:
            from detectron2.config import get_cfg
            from detectron2.engine import DefaultTrainer
            THERE = True
        except ImportError:
            get_cfg = None
            DefaultTrainer = object
            THERE = False
        if not THERE:
            sys.exit("no Detectron2")
        cfg = get_cfg()
        cfg.SOLVER.IMS_PER_BATCH = 6
        DefaultTrainer(cfg).train()
        """
    assert opened(tmp_path, {"a.py": text}).config.values["SOLVER.IMS_PER_BATCH"] == 6


CALLED = {
    "from another function": """
        def train(batch=2):
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH = batch
            DefaultTrainer(cfg).train()
        def main():
            train(batch=6)
        """,
    "by a method of a class that another one makes": """
        class Task:
            def run(self):
                cfg = get_cfg()
                cfg.SOLVER.IMS_PER_BATCH = 6
                DefaultTrainer(cfg).train()
        class Factory:
            def make(self):
                return Task()
        """,
    "by its own default": """
        def train(batch=6):
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH = batch
            DefaultTrainer(cfg).train()
        """,
}


@pytest.mark.parametrize("way", CALLED)
def test_functions_that_others_call(way: str, tmp_path: Path) -> None:
    assert opened(tmp_path, {"a.py": CALLED[way]}).config.values["SOLVER.IMS_PER_BATCH"] == 6


def test_a_default_of_a_function_that_the_script_does_not_come_to_is_not_taken(tmp_path: Path) -> None:
    text = """
        def train(batch=2):
            cfg = get_cfg()
            cfg.SOLVER.IMS_PER_BATCH = batch
            DefaultTrainer(cfg).train()
        def find(places):
            for each in places:
                if each.startswith("/data"):
                    return each
            raise FileNotFoundError
        train(batch=read(find(["mine"])))
        """
    with pytest.raises(InputError, match=r"SOLVER.IMS_PER_BATCH = batch is not known"):
        resolve(opened(tmp_path, {"a.py": text}), {})
