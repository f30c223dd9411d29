"""What a script does on ways that are easily overlooked: behind ``and``, in a comprehension, by one of several
functions, to a copy."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from oomproof.errors import InputError
from oomproof.sources.detectron2.script.script import open_script
from oomproof.sources.settings import resolve

HEAD = """
import os, copy, functools, types
from detectron2.config import get_cfg, CfgNode as CN
from detectron2.data import build_detection_train_loader
from detectron2.engine import DefaultTrainer
cfg = get_cfg()
"""
BATCH = "SOLVER.IMS_PER_BATCH"

KNOWN = {
    "deepcopy": """
        base = {"batch": 8, "more": [1]}
        other = copy.deepcopy(base)
        other["batch"] = 2
        other["more"].append(3)
        cfg.SOLVER.IMS_PER_BATCH = base["batch"] * len(base["more"])
        """,
    "shallow copy": """
        class Settings:
            batch = 8
        one = Settings()
        two = copy.copy(one)
        two.batch = 2
        cfg.SOLVER.IMS_PER_BATCH = one.batch
        """,
    "sets": "cfg.SOLVER.IMS_PER_BATCH = len({x % 2 for x in range(6)}) * len({4, 4, 1}) * len(set([1, 1, 2]))",
    "run once": """
        @functools.lru_cache
        def settings():
            return types.SimpleNamespace(batch=16)
        settings().batch = 8
        cfg.SOLVER.IMS_PER_BATCH = settings().batch
        """,
    "config made once": """
        @functools.lru_cache(maxsize=None)
        def make():
            return get_cfg()
        make().SOLVER.IMS_PER_BATCH = 8
        cfg = make()
        """,
    "order of classes": """
        class One:
            def batch(self): return 1
        class Two(One):
            def batch(self): return super().batch() + 1
        class Four(One):
            def batch(self): return super().batch() * 7
        class Both(Two, Four): pass
        cfg.SOLVER.IMS_PER_BATCH = Both().batch()
        """,
    "class of a class method": """
        class One:
            batch = 1
            @classmethod
            def double(cls): return cls.batch * 2
        class Four(One):
            batch = 4
            @classmethod
            def double(cls): return super().double()
        cfg.SOLVER.IMS_PER_BATCH = Four.double()
        """,
    "class of itself": """
        class Settings:
            batch = 4
            def change(self): type(self).batch += 2; self.__class__.batch += 2
        Settings().change()
        cfg.SOLVER.IMS_PER_BATCH = Settings.batch
        """,
    "section by get": "cfg.get('SOLVER').IMS_PER_BATCH = cfg.get('BATCH', 8)",
    "new section": "cfg.SOLVER.AMP = CN({'ENABLED': True}); cfg.SOLVER.IMS_PER_BATCH = 7 + cfg.SOLVER.AMP.ENABLED",
    "merged node": "cfg.merge_from_other_cfg(CN({'SOLVER': {'IMS_PER_BATCH': 8}}))",
    "dict comprehension": "{key: cfg.merge_from_list([key, value]) for key, value in [('SOLVER.IMS_PER_BATCH', 8)]}",
    "awaited": """
        async def inner(): cfg.SOLVER.IMS_PER_BATCH = 8
        async def main(): await inner()
        import asyncio
        asyncio.run(main())
        """,
    "in a text": """
        def change(): cfg.SOLVER.IMS_PER_BATCH = 8
        print(f"{os.getpid()} {change()}")
        """,
    "formatted": "cfg.merge_from_list(['SOLVER.IMS_PER_BATCH', int(f'{8.2:.0f}')])",
    "generator": """
        def overrides():
            yield "SOLVER.IMS_PER_BATCH", 4
            yield from {"SOLVER.IMS_PER_BATCH": 8}.items()
        for key, value in overrides():
            cfg.merge_from_list([key, value])
        """,
    "names of the module": """
        BATCH = 4
        def change(): globals()["BATCH"] = 8
        change()
        cfg.SOLVER.IMS_PER_BATCH = BATCH
        """,
    "function by its name": """
        def small(cfg): cfg.SOLVER.IMS_PER_BATCH = 8
        globals()["small"](cfg)
        """,
    "methods of classes": """
        dict.__setitem__(cfg.SOLVER, "IMS_PER_BATCH", 4)
        CN.merge_from_list(cfg, ["SOLVER.IMS_PER_BATCH", 8 if cfg.SOLVER.IMS_PER_BATCH == 4 else 2])
        """,
    "operators": """
        class Edits:
            def __init__(self): self.batch = 1
            def __add__(self, other): self.batch += other; return self
            def __setitem__(self, key, value): cfg.merge_from_list([key, value])
            def __getitem__(self, key): return self.batch
        edits = Edits() + 3
        edits["SOLVER.IMS_PER_BATCH"] = edits["batch"] * 2
        """,
    "every attribute by a method": """
        class Edits:
            def __setattr__(self, name, value): cfg.SOLVER.IMS_PER_BATCH = value
        Edits().batch = 8
        """,
    "descriptors": """
        class Batch:
            def __get__(self, of, kind): return cfg.SOLVER.IMS_PER_BATCH
            def __set__(self, of, value): cfg.SOLVER.IMS_PER_BATCH = value * 2
        class Settings:
            batch = Batch()
        Settings().batch = 4
        cfg.SOLVER.IMS_PER_BATCH = Settings().batch
        """,
    "exception that is hidden": """
        class Hiding:
            def __enter__(self): return self
            def __exit__(self, *raised): return True
        with Hiding():
            cfg.SOLVER.IMS_PER_BATCH = 8
            raise ValueError
        cfg.OUTPUT_DIR = "there"
        """,
    "dict with attributes": """
        class Settings(dict):
            batch = 8
        settings = Settings()
        settings["batch"] = 2
        cfg.SOLVER.IMS_PER_BATCH = settings.batch * (settings["batch"] - 1)
        """,
    "registry": """
        class Registry(dict):
            def register(self, function): self[function.__name__] = function; return function
        registry = Registry()
        @registry.register
        def small(): cfg.SOLVER.IMS_PER_BATCH = 8
        registry["small"]()
        """,
    "keys of a section": "cfg.SOLVER.IMS_PER_BATCH = 8 if 'IMS_PER_BATCH' in cfg.SOLVER and 'X' not in cfg else 2",
    "replaced function": """
        import detectron2.config
        old = detectron2.config.get_cfg
        def make():
            made = old()
            made.SOLVER.IMS_PER_BATCH = 8
            return made
        detectron2.config.get_cfg = make
        cfg = detectron2.config.get_cfg()
        """,
    "marked by a call": """
        class Trainer(DefaultTrainer):
            build_train_loader = classmethod(lambda cls, cfg: build_detection_train_loader(cfg, total_batch_size=8))
        DefaultTrainer = Trainer
        """,
}


@pytest.mark.parametrize("name", KNOWN)
def test_ways_that_the_code_tells(name: str, tmp_path: Path) -> None:
    assert batch_of(tmp_path, KNOWN[name]) == 8


UNKNOWN = {
    "and": "os.environ.get('SMALL') and cfg.merge_from_list(['SOLVER.IMS_PER_BATCH', 2])",
    "or": "os.environ.get('LARGE') or cfg.merge_from_list(['SOLVER.IMS_PER_BATCH', 2])",
    "comprehension": "[setattr(cfg.SOLVER, 'IMS_PER_BATCH', int(text)) for text in os.environ['BATCH'].split(',')]",
    "filtered": "[setattr(cfg.SOLVER, 'IMS_PER_BATCH', size) for size in (2, 4) if os.path.exists(str(size))]",
    "by a dict": """
        def small(): cfg.SOLVER.IMS_PER_BATCH = 2
        def large(): cfg.SOLVER.IMS_PER_BATCH = 8
        {"small": small, "large": large}[os.environ["MODE"]]()
        """,
    "by dict.get": """
        def small(): cfg.SOLVER.IMS_PER_BATCH = 2
        {"small": small}.get(os.environ["MODE"], print)()
        """,
    "by a branch": """
        def small(cfg): cfg.SOLVER.IMS_PER_BATCH = 2
        def large(cfg): cfg.SOLVER.IMS_PER_BATCH = 8
        prepare = small if os.environ.get("SMALL") else large
        prepare(cfg)
        """,
    "by a name": """
        class Modes:
            def small(self): cfg.SOLVER.IMS_PER_BATCH = 2
            def large(self): cfg.SOLVER.IMS_PER_BATCH = 8
        getattr(Modes(), os.environ["MODE"])()
        """,
    "by a class": """
        class Small:
            def prepare(self): cfg.SOLVER.IMS_PER_BATCH = 2
        class Large:
            def prepare(self): cfg.SOLVER.IMS_PER_BATCH = 8
        {"small": Small, "large": Large}[os.environ["MODE"]]().prepare()
        """,
    "set on one of two": """
        one, two = types.SimpleNamespace(batch=4), types.SimpleNamespace(batch=4)
        (one if os.environ.get("ONE") else two).batch = 2
        cfg.SOLVER.IMS_PER_BATCH = one.batch
        """,
    "in front of every attribute": """
        class Settings:
            batch = 4
            def __getattribute__(self, name): return 8
        cfg.SOLVER.IMS_PER_BATCH = Settings().batch
        """,
    "section that is gone": "cfg.SOLVER = CN({'BASE_LR': 0.1})",
    "suppressed": """
        import contextlib
        with contextlib.suppress(KeyError):
            os.environ["BATCH"]
            cfg.SOLVER.IMS_PER_BATCH = 2
        """,
    "raised": """
        def change():
            cfg.SOLVER.IMS_PER_BATCH = 2
            raise ValueError
        try: change()
        except ValueError: pass
        """,
    "generator that nobody asks": """
        def steps():
            cfg.SOLVER.IMS_PER_BATCH = 2
            yield 1
        steps()
        """,
    "shuffled": """
        import random
        sizes = [2, 4, 8]
        random.shuffle(sizes)
        cfg.SOLVER.IMS_PER_BATCH = sizes[0]
        """,
    "replaced loader": """
        def make(cls, cfg): return build_detection_train_loader(cfg, total_batch_size=2)
        DefaultTrainer.build_train_loader = classmethod(make)
        """,
    "attribute by any name": """
        settings = types.SimpleNamespace(batch=4)
        for name in os.environ["SET"].split(","):
            setattr(settings, name, 2)
        cfg.SOLVER.IMS_PER_BATCH = settings.batch
        """,
    "loader of other code": """
        from somewhere import make_loader
        class Trainer(DefaultTrainer):
            build_train_loader = make_loader
        DefaultTrainer = Trainer
        """,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_ways_that_only_a_run_tells(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=BATCH):
        batch_of(tmp_path, UNKNOWN[name])


def test_what_replaces_a_part_of_detectron2_is_told(tmp_path: Path) -> None:
    path = tmp_path / "train_net.py"
    lines = ["def step(self): pass", "DefaultTrainer.run_step = step", "DefaultTrainer(cfg).train()"]
    path.write_text("\n".join([HEAD, *lines]), encoding="utf-8")
    said = "DefaultTrainer.run_step is replaced by step; forecast is Detectron2's own"
    assert any(said in each for each in open_script(path, ()).config.guesses)


def test_functions_that_choose_functions_are_given_up(tmp_path: Path) -> None:
    steps = "".join(
        f"def f{i}():\n    cfg.SOLVER.BASE_LR = {i}.0\n    steps[os.environ['STEP']]()\n" for i in range(30)
    )
    names = ", ".join(f"'{i}': f{i}" for i in range(30))
    with pytest.raises(InputError, match="does too much to be followed"):
        batch_of(tmp_path, f"{steps}steps = {{{names}}}\nsteps[os.environ['STEP']]()")


def test_modules_where_the_script_says_that_they_are(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "tuning.py").write_text("def tune(cfg): cfg.SOLVER.IMS_PER_BATCH = 8\n", encoding="utf-8")
    text = """
        import sys
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
        import tuning
        tuning.tune(cfg)
        """
    assert batch_of(tmp_path, text) == 8


def batch_of(folder: Path, text: str) -> object:
    path = folder / "train_net.py"
    path.write_text(f"{HEAD}{dedent(text)}\nDefaultTrainer(cfg).train()\n", encoding="utf-8")
    return resolve(open_script(path, ()), {})[BATCH]
