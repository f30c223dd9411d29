"""Changes that reach a config by another name: shared sections, lists and dicts, ``with``, loops left early."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.sources.detectron2.job import Detectron2Job
from oomproof.sources.detectron2.script.script import open_script
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
    "with, a function": """
        @contextmanager
        def thawed(c, batch):
            c.defrost()
            yield c
            c.SOLVER.IMS_PER_BATCH += batch
        with thawed(cfg, 3) as c:
            c.SOLVER.IMS_PER_BATCH = 5
        """,
    "with, as it was": """
        @contextmanager
        def without(c):
            old = c.SOLVER.IMS_PER_BATCH
            try:
                yield
            finally:
                c.SOLVER.IMS_PER_BATCH = old
        cfg.SOLVER.IMS_PER_BATCH = 8
        with open("log") as f, without(cfg):
            cfg.SOLVER.IMS_PER_BATCH = 2
        """,
    "with, a training in it": """
        @contextlib.contextmanager
        def sized(c, n):
            c.SOLVER.IMS_PER_BATCH = n
            yield
            c.SOLVER.IMS_PER_BATCH = 2
        def main():
            with sized(cfg, 8):
                return DefaultTrainer(cfg)
        main().train()
        sys.exit()
        """,
    "with, a class": """
        class Thawed:
            def __init__(self, c):
                self.c = c
            def __enter__(self):
                return self.c
            def __exit__(self, *error):
                self.c.SOLVER.IMS_PER_BATCH *= 2
        with Thawed(cfg) as c:
            c.SOLVER.IMS_PER_BATCH = 4
        """,
    "while": """
        stage = 0
        while stage < 4:
            stage += 1
            if stage == 3:
                cfg.SOLVER.IMS_PER_BATCH = 8
        """,
    "continue and break": """
        n = 0
        while True:
            n += 1
            if n < 8:
                continue
            cfg.SOLVER.IMS_PER_BATCH = n
            break
        else:
            cfg.SOLVER.IMS_PER_BATCH = 3
        """,
    "a shared section": """
        other = get_cfg()
        cfg.SOLVER = other.SOLVER
        other.SOLVER.IMS_PER_BATCH = 8
        """,
    "a copied section": """
        other = get_cfg()
        other.SOLVER.IMS_PER_BATCH = 8
        cfg.SOLVER = other.SOLVER.clone()
        other.SOLVER.IMS_PER_BATCH = 2
        section = copy.deepcopy(cfg.SOLVER)
        section.IMS_PER_BATCH = 3
        """,
    "del": """
        sizes, options = {"batch": 2}, ["SOLVER.IMS_PER_BATCH", 8, "SOLVER.IMS_PER_BATCH", 4]
        del sizes["batch"], options[2:]
        cfg.SOLVER.IMS_PER_BATCH = sizes.get("batch", 3)
        cfg.merge_from_list(options)
        """,
    "a shared list": """
        def add(options):
            options += ["SOLVER.IMS_PER_BATCH", 8]
        options = []
        add(options)
        cfg.merge_from_list(options)
        """,
    "a shared dict": """
        def add(sizes):
            sizes |= {"batch": 8}
        sizes = {}
        add(sizes)
        cfg.SOLVER.IMS_PER_BATCH = sizes.get("batch", 2)
        """,
    "nested dicts": """
        def put(node, values):
            for key, value in values.items():
                if isinstance(value, dict):
                    put(getattr(node, key), value)
                else:
                    setattr(node, key, value)
        put(cfg, {"SOLVER": {"IMS_PER_BATCH": 8}, "INPUT": {"MAX_SIZE_TRAIN": 900}})
        """,
    "a path through sections": """
        for path, value in {"SOLVER.IMS_PER_BATCH": 8}.items():
            node = cfg
            *sections, last = path.split(".")
            for section in sections:
                node = node[section]
            node[last] = value
        """,
    "__dict__": """
        class Sizes:
            batch = 2
            def __init__(self, **sizes):
                self.__dict__.update(sizes)
        cfg.SOLVER.IMS_PER_BATCH = Sizes(batch=8).batch
        """,
    "vars": """
        parser.add_argument("--batch", type=int, default=2)
        args = parser.parse_args()
        vars(args)["batch"] = 8
        cfg.SOLVER.IMS_PER_BATCH = args.batch
        """,
    "a comprehension in a class": """
        size = 8
        class Sizes:
            size = 2
            batch = [size for _ in range(1)][0]
        cfg.SOLVER.IMS_PER_BATCH = Sizes.batch
        """,
    "flags with a sign": """
        parser.add_argument("--batch", "-b", type=int, default=2)
        cfg.SOLVER.IMS_PER_BATCH = parser.parse_args(["--batch=8"]).batch
        """,
    "short flags": """
        parser.add_argument("--batch", "-b", type=int, default=2)
        cfg.SOLVER.IMS_PER_BATCH = parser.parse_args(("-b", "8")).batch
        """,
}


@pytest.mark.parametrize("way", FOLLOWED)
def test_changes_by_another_name_are_followed(way: str, tmp_path: Path) -> None:
    assert settings_of(tmp_path, FOLLOWED[way])[KEY] == 8
    assert opened(tmp_path, FOLLOWED[way]).place  # nothing is guessed


ASKED = {
    "an unknown config": """
        that = project.thaw(cfg)
        that.SOLVER.IMS_PER_BATCH = 8
        """,
    "an unknown section": """
        for node in project.sections(cfg):
            node.IMS_PER_BATCH = 8
        """,
    "by item": """
        project.thaw(cfg)["SOLVER"]["IMS_PER_BATCH"] = 8
        """,
    "with, of others": """
        with project.thawed(cfg) as c:
            c.SOLVER.IMS_PER_BATCH = 8
        """,
    "an unknown section in its place": """
        cfg.SOLVER = project.solver()
        """,
    "continue": """
        for n in (4, 8):
            if os.path.exists(str(n)):
                continue
            cfg.SOLVER.IMS_PER_BATCH = n
        """,
    "break": """
        for n in (4, 8):
            if os.path.exists(str(n)):
                break
            cfg.SOLVER.IMS_PER_BATCH = n
        """,
    "return in a loop": """
        def size():
            for n in (4, 8):
                if os.path.exists(str(n)):
                    return n
            return 2
        cfg.SOLVER.IMS_PER_BATCH = size()
        """,
    "rounds of an unknown loop": """
        before = None
        for file in os.listdir("."):
            if before == "seen":
                cfg.SOLVER.IMS_PER_BATCH = 8
            before = "seen"
        """,
    "a path that nobody knows": """
        node = cfg
        for section in os.environ["SECTIONS"].split():
            node = node[section]
        node.IMS_PER_BATCH = 8
        """,
    "vars, from elsewhere": """
        parser.add_argument("--batch", type=int, default=2)
        args = parser.parse_args()
        vars(args).update(json.load(open("mine.json")))
        cfg.SOLVER.IMS_PER_BATCH = args.batch
        """,
    "a type of ones own": """
        parser.add_argument("--small", type=as_bool, default="False")
        if parser.parse_args().small:
            cfg.SOLVER.IMS_PER_BATCH = 8
        """,
    "two parsers": """
        train, test = subparsers.add_parser("train"), subparsers.add_parser("test")
        train.add_argument("--batch", type=int, default=8)
        test.add_argument("--batch", type=int, default=1)
        cfg.SOLVER.IMS_PER_BATCH = parser.parse_args().batch
        """,
    "a metaclass": """
        class Sizes(metaclass=Doubling):
            batch = 4
        cfg.SOLVER.IMS_PER_BATCH = Sizes.batch
        """,
    "an object that says whether it is true": """
        class Sizes:
            def __bool__(self):
                return False
        if Sizes():
            cfg.SOLVER.IMS_PER_BATCH = 8
        """,
    "an argument of several values": """
        parser.add_argument("--batch", nargs="+", type=int, default=[2])
        cfg.SOLVER.IMS_PER_BATCH = parser.parse_args(["--batch", "8", "9"]).batch[0]
        """,
}


@pytest.mark.parametrize("way", ASKED)
def test_changes_that_nobody_knows_are_asked_for(way: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not known before the script runs.*SOLVER.IMS_PER_BATCH VALUE"):
        settings_of(tmp_path, ASKED[way])


def test_a_list_in_a_config_that_is_changed_in_its_place(tmp_path: Path) -> None:
    key = "MODEL.ANCHOR_GENERATOR.SIZES"
    for change in (f"cfg.{key}[0].append(64)\n", f"cfg.{key}[0][1] = 16\n"):
        with pytest.raises(InputError, match=rf"changes {key}, which is not known.*{key} VALUE"):
            settings_of(tmp_path, change)


def test_a_key_and_a_section_that_nobody_knows_may_be_any(tmp_path: Path) -> None:
    for change in ("node[key] = 8\n", "setattr(node, key, 8)\n"):
        with pytest.raises(InputError, match=r"is not known before the script runs.*cfg.dump"):
            opened(tmp_path, f"key = os.environ['KEY']\nnode = getattr(cfg, os.environ['SECTION'])\n{change}")


def test_what_is_merged_into_an_unknown_config_may_be_in_any(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"merge_from_list.*may change the config.*cfg.dump"):
        opened(tmp_path, "project.thaw(cfg).merge_from_list(['SOLVER.IMS_PER_BATCH', 8])\n")


def test_a_file_that_the_script_writes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "old.yaml"
    path.write_text("SOLVER:\n  IMS_PER_BATCH: 3\n")
    text = f"cfg.SOLVER.IMS_PER_BATCH = 8\nwith open({str(path)!r}, 'w') as f:\n    f.write(cfg.dump())\n"
    merge = f"cfg = get_cfg()\ncfg.merge_from_file({str(path)!r})\n"
    with pytest.raises(InputError, match=r"the script itself writes .*old.yaml, which it merges here; write cfg.dump"):
        opened(tmp_path, text + merge)
    assert settings_of(tmp_path, text.replace("'w'", "'r'") + merge)[KEY] == 3


def test_a_section_of_another_config_brings_its_keys(tmp_path: Path) -> None:
    text = """
        other = model_zoo.get_config("COCO-Detection/faster_rcnn_R_101_FPN_3x.yaml")
        cfg.MODEL = other.MODEL
        cfg.MODEL.RPN.POST_NMS_TOPK_TRAIN = 1234
        """
    config = opened(tmp_path, text).config
    assert config.values["MODEL.RESNETS.DEPTH"] == 101 and config.values["MODEL.RPN.POST_NMS_TOPK_TRAIN"] == 1234
    assert config.values["SOLVER.MAX_ITER"] == 40000 and not config.unknown
