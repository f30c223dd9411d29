"""What Python does around a config: decorators, properties, ``finally``, functions that other code is handed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.sources.detectron2.job import Detectron2Job
from oomproof.sources.detectron2.script.script import is_script, open_script
from oomproof.sources.settings import resolve

KEY = "SOLVER.IMS_PER_BATCH"
HEAD = "cfg = get_cfg()\n"
TAIL = "DefaultTrainer(cfg).train()\n"


def opened(folder: Path, text: str) -> Detectron2Job:
    path = folder / "train_net.py"
    path.write_text(HEAD + dedent(text) + TAIL, encoding="utf-8")
    return open_script(path, ())


def settings_of(folder: Path, text: str, **given: Any) -> Mapping[str, Any]:
    return resolve(opened(folder, text), given)


FOLLOWED = {
    "decorator, argument": """
        def halved(f):
            @functools.wraps(f)
            def inner(size, **more):
                return f(size // 2, **more)
            return inner
        @halved
        def configure(size):
            cfg.SOLVER.IMS_PER_BATCH = size
        configure(16)
        """,
    "decorator, result": """
        class Times:
            def __init__(self, n):
                self.n = n
            def __call__(self, f):
                return lambda *a: self.n * f(*a)
        @Times(4)
        def size():
            return 2
        cfg.SOLVER.IMS_PER_BATCH = size()
        """,
    "decorator of a method": """
        n = 3
        def more(f):
            def inner(self, *a):
                return f(self, *a) + 5
            return inner
        class Sizes:
            n = 90
            @property
            @more
            def batch(self):
                return n
            @staticmethod
            @torch.no_grad()
            def nothing():
                return 0
        cfg.SOLVER.IMS_PER_BATCH = Sizes().batch + Sizes.nothing()
        """,
    "registry": """
        STEPS = {}
        def step(name):
            def keep(f):
                STEPS[name] = f
                return f
            return keep
        @step("large")
        def large(c):
            c.SOLVER.IMS_PER_BATCH = 8
        STEPS["large"](cfg)
        """,
    "decorator of a class": """
        def larger(cls):
            cls.batch = 2 * cls.batch
            return cls
        @larger
        class Sizes:
            batch = 4
        cfg.SOLVER.IMS_PER_BATCH = Sizes.batch
        """,
    "subclasses": """
        class Base:
            def __init_subclass__(cls, batch):
                cls.batch = batch
        class Sizes(Base, batch=8):
            batch = 4
        cfg.SOLVER.IMS_PER_BATCH = Sizes.batch
        """,
    "nonlocal": """
        def count():
            total = 2
            def add(n):
                nonlocal total
                total += n
            add(1)
            add(5)
            return total
        cfg.SOLVER.IMS_PER_BATCH = count()
        """,
    "post init": """
        from dataclasses import InitVar, dataclass
        @dataclass
        class Sizes:
            gpus: int = 4
            each: InitVar[int] = 2
            def __post_init__(self, each):
                self.batch = self.gpus * each
        cfg.SOLVER.IMS_PER_BATCH = Sizes().batch
        """,
    "setter": """
        class Sizes:
            @property
            def batch(self):
                return self._batch
            @batch.setter
            def batch(self, each):
                self._batch = each * 4
        sizes = Sizes()
        sizes.batch = 2
        cfg.SOLVER.IMS_PER_BATCH = sizes.batch
        """,
    "finally": """
        def prepare():
            try:
                if unheard_of():
                    return 1
                return 2
            finally:
                cfg.SOLVER.IMS_PER_BATCH = 8
        prepare()
        """,
    "exec": """
        exec("cfg.SOLVER.IMS_PER_BATCH = 2 * eval('4')")
        """,
    "harmless": """
        @functools.lru_cache(maxsize=None)
        def size():
            return 8
        @click.command()
        def configure():
            cfg.SOLVER.IMS_PER_BATCH = size()
        DatasetCatalog.register("mine", lambda: load("mine"))
        configure()
        """,
}


@pytest.mark.parametrize("way", FOLLOWED)
def test_what_python_does_is_followed(way: str, tmp_path: Path) -> None:
    assert settings_of(tmp_path, FOLLOWED[way])[KEY] == 8
    assert opened(tmp_path, FOLLOWED[way]).place  # nothing is guessed


ASKED = {
    "map": "list(map(lambda n: cfg.SOLVER.__setitem__('IMS_PER_BATCH', n), [2, 8]))\n",
    "thread": """
        def change():
            cfg.SOLVER.IMS_PER_BATCH = 8
        thread = threading.Thread(target=change)
        cfg.SOLVER.IMS_PER_BATCH = 4
        thread.start()
        """,
    "thread with the config": """
        def change(c, n):
            c.SOLVER.IMS_PER_BATCH = n
        threading.Thread(target=change, args=(cfg, 8)).start()
        """,
    "pool": """
        def inner(c):
            c.SOLVER.IMS_PER_BATCH = 8
        def change(c):
            inner(c)
        with ThreadPoolExecutor() as pool:
            pool.submit(change, cfg).result()
        """,
    "global": """
        size = 4
        def change():
            global size
            size = 8
        project.run(change)
        cfg.SOLVER.IMS_PER_BATCH = size
        """,
    "decorator of others": """
        import project
        @project.doubled
        def size():
            return 4
        cfg.SOLVER.IMS_PER_BATCH = size()
        """,
    "exec": """
        size = 4
        exec(open("mine.py").read())
        cfg = get_cfg()
        cfg.SOLVER.IMS_PER_BATCH = size
        """,
}


@pytest.mark.parametrize("way", ASKED)
def test_what_may_run_is_asked_for(way: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not known before the script runs.*SOLVER.IMS_PER_BATCH VALUE$"):
        settings_of(tmp_path, ASKED[way])
    assert settings_of(tmp_path, ASKED[way], batch="6")[KEY] == 6


def test_a_text_that_nobody_knows_may_change_every_key(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train_net.py:2: exec\(.*may change the config.*cfg.dump"):
        opened(tmp_path, "exec(open('mine.py').read())\n")


GUESSED = {
    "decorator of others": """
        import project
        @project.doubled
        def configure(n):
            cfg.SOLVER.IMS_PER_BATCH = n
        configure(4)
        """,
    "nobody knows what": "STEPS[args.step](cfg)\n",
}


@pytest.mark.parametrize("way", GUESSED)
def test_what_may_change_the_config_is_said_and_not_written(way: str, tmp_path: Path) -> None:
    job = opened(tmp_path, GUESSED[way])
    assert any("may change the config" in guess for guess in job.config.guesses)
    with pytest.raises(InputError, match="may change the config"):
        _ = job.place


def test_a_config_that_a_file_beside_the_script_makes(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    (tmp_path / "mine.py").write_text(
        "def setup(n):\n    cfg = get_cfg()\n    cfg.SOLVER.IMS_PER_BATCH = n\n    return cfg\n"
    )
    path.write_text(
        "from mine import setup\nfrom detectron2.engine import DefaultTrainer\nDefaultTrainer(setup(6)).train()\n"
    )
    assert is_script(path) and resolve(open_script(path, ()), {})[KEY] == 6
    path.write_text("import torch\nfrom mine import setup\n")
    assert not is_script(path)
    path.write_text("import detectron2\nimport other\n")
    assert not is_script(path)


def test_a_key_that_must_be_given_has_no_default(tmp_path: Path) -> None:
    job = opened(tmp_path, "cfg.SOLVER.IMS_PER_BATCH = int(os.environ.get('BATCH', 4))\n")
    setting = next(each for each in job.settings if each.name == KEY)
    assert setting.default == "not known" and "os.environ" in setting.help
