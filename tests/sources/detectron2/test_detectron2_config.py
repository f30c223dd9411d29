"""Detectron2 configs: files, bases, zoo names and overrides, read as Detectron2 reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from detectron2_samples import NAMES, SAMPLES, dumped

from oomproof.errors import InputError
from oomproof.sources.detectron2.config.config import read
from oomproof.sources.detectron2.config.schema import DEFAULTS, SECTIONS


def made(folder: Path, text: str, name: str = "job.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def refused(path: Path | str, *overrides: str) -> str:
    with pytest.raises(InputError) as error:
        read(path, overrides)
    text = str(error.value)
    assert "\n" not in text
    return text


def test_the_schema_is_whole() -> None:
    assert len(DEFAULTS) == 192
    assert DEFAULTS["MODEL.ROI_BOX_HEAD.BBOX_REG_WEIGHTS"] == (10.0, 10.0, 5.0, 5.0)
    assert "MODEL.RPN" in SECTIONS and "MODEL.RPN" not in DEFAULTS
    assert not SECTIONS & set(DEFAULTS)


def test_a_base_that_is_not_there_is_the_published_one() -> None:
    config = read(SAMPLES / "instance.yaml")
    assert config.values["MODEL.RPN.PRE_NMS_TOPK_TRAIN"] == 2000
    assert config.values["MODEL.ROI_HEADS.NUM_CLASSES"] == 3
    assert config.values["DATASETS.TEST"] == ("parts_val",)
    assert any("Base-RCNN-FPN.yaml" in note for note in config.notes)
    assert config.origins["SOLVER.IMS_PER_BATCH"].line == 17
    assert "model zoo" in str(config.origins["MODEL.RPN.PRE_NMS_TOPK_TRAIN"])


def test_a_chain_of_files() -> None:
    values = read(SAMPLES / "child.yaml").values
    assert values["MODEL.FPN.IN_FEATURES"] == ["res2", "res3", "res4", "res5"]
    assert values["SOLVER.STEPS"] == (7000, 9000)
    assert values["SOLVER.IMS_PER_BATCH"] == 4  # quoted in the file, and the base has 8
    assert values["INPUT.MIN_SIZE_TRAIN"] == (480, 512, 544)
    assert values["SOLVER.AMP.ENABLED"] is False and values["DATALOADER.ASPECT_RATIO_GROUPING"] is False
    assert values["MODEL.RESNETS.DEPTH"] == 101
    config = read(SAMPLES / "child.yaml")
    assert config.origins["SOLVER.STEPS"].file.endswith("shared.yaml") and config.origins["SOLVER.STEPS"].line == 19


def test_arithmetic_is_worked_out_and_code_is_not_run(tmp_path: Path) -> None:
    sizes = read(SAMPLES / "retinanet.yaml").values["MODEL.ANCHOR_GENERATOR.SIZES"]
    assert sizes[0] == [32, 32 * 2 ** (1.0 / 3), 32 * 2 ** (2.0 / 3)]
    assert read(SAMPLES / "retinanet.yaml").values["DATASETS.TRAIN"] == ("coco_2017_train",)
    for code in ("[\"open('x')\"]", "[\"__import__('os')\"]", '["9**9**9"]', '["[0]*10**9"]', '["(lambda: 1)()"]'):
        text = f"MODEL:\n  ANCHOR_GENERATOR:\n    SIZES: !!python/object/apply:eval {code}\n"
        assert "arithmetic" in refused(made(tmp_path, text))
    text = 'OUTPUT_DIR: !!python/object/apply:os.system ["touch ran"]\n'
    assert "no YAML that Detectron2 reads" in refused(made(tmp_path, text))
    assert not (tmp_path / "ran").exists()


def test_every_key_as_detectron2_dumps_it(tmp_path: Path) -> None:
    path = made(tmp_path, dumped({"SOLVER.STEPS": (1, 2), "MODEL.MASK_ON": True}))
    config = read(path)
    assert config.values["SOLVER.STEPS"] == (1, 2)
    assert len(config.origins) == len(DEFAULTS)


def test_aliases_and_merged_sections(tmp_path: Path) -> None:
    assert read(SAMPLES / "aliases.yaml").values["TEST.AUG.MIN_SIZES"] == (512, 640)
    text = "INPUT: &common\n  CROP: &crop {ENABLED: True}\nTEST:\n  AUG:\n    <<: *crop\n    FLIP: False\n"
    values = read(made(tmp_path, text)).values
    assert values["TEST.AUG.ENABLED"] is True and values["TEST.AUG.FLIP"] is False


def test_a_key_that_comes_twice_counts_as_in_pyyaml(tmp_path: Path) -> None:
    text = "SOLVER:\n  IMS_PER_BATCH: 4\n  MAX_ITER: 7\nSOLVER:\n  IMS_PER_BATCH: 2\n"
    values = read(made(tmp_path, text)).values
    assert values["SOLVER.IMS_PER_BATCH"] == 2
    assert values["SOLVER.MAX_ITER"] == DEFAULTS["SOLVER.MAX_ITER"]  # the first section is lost, as a whole


@pytest.mark.parametrize(
    "name",
    [
        "mask_rcnn_R_50_FPN_3x.yaml",
        "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x.yaml",
        "configs/COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x.yaml",
        "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x",
    ],
)
def test_zoo_names(name: str) -> None:
    values = read(name).values
    assert values["SOLVER.MAX_ITER"] == 270000 and values["MODEL.MASK_ON"] is True


def test_overrides_are_literals() -> None:
    config = read("mask_rcnn_R_50_FPN_3x.yaml", ("INPUT.MIN_SIZE_TRAIN", "(600,)", "MODEL.WEIGHTS", "w.pth"))
    assert config.values["INPUT.MIN_SIZE_TRAIN"] == (600,)
    assert config.values["MODEL.WEIGHTS"] == "w.pth"
    assert str(config.origins["MODEL.WEIGHTS"]) == "the command line"
    assert read("mask_rcnn_R_50_FPN_3x.yaml", ("INPUT.MIN_SIZE_TRAIN", "[600]")).values["INPUT.MIN_SIZE_TRAIN"] == (
        600,
    )
    assert "pairs" in refused("mask_rcnn_R_50_FPN_3x.yaml", "SOLVER.IMS_PER_BATCH")
    for joined in ("SOLVER.IMS_PER_BATCH=8", "SOLVER.IMS_PER_BATCH 8"):
        assert "as two: SOLVER.IMS_PER_BATCH 8" in refused("mask_rcnn_R_50_FPN_3x.yaml", joined)
    assert "must be a whole number" in refused("mask_rcnn_R_50_FPN_3x.yaml", "SOLVER.IMS_PER_BATCH", "8.0")
    assert "SOLVER.IMS_PER_BATCH" in refused("mask_rcnn_R_50_FPN_3x.yaml", "SOLVER.IMS_PER_BACH", "8")
    assert "_BASE_" in refused("mask_rcnn_R_50_FPN_3x.yaml", "_BASE_", "x.yaml")


def test_old_configs_are_read_under_new_names(tmp_path: Path) -> None:
    text = "MODEL:\n  WEIGHT: w.pkl\n  RPN:\n    ANCHOR_SIZES: [[8]]\n  RETINANET:\n    ANCHOR_SIZES: [[9]]\n"
    config = read(made(tmp_path, text))
    assert config.values["MODEL.WEIGHTS"] == "w.pkl"
    assert config.values["MODEL.ANCHOR_GENERATOR.SIZES"] == [[8]]
    assert any("old config" in note for note in config.notes)
    retina = read(made(tmp_path, text + "  META_ARCHITECTURE: RetinaNet\n"))
    assert retina.values["MODEL.ANCHOR_GENERATOR.SIZES"] == [[9]]
    assert "VERSION must be 2 or older" in refused(made(tmp_path, "VERSION: 3\n"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SOLVER:\n  IMS_PER_BACH: 4\n", "job.yaml:2: SOLVER.IMS_PER_BACH does not exist"),
        ("SOLVER:\n  IMS_PER_BACH: 4\n", "did you mean SOLVER.IMS_PER_BATCH?"),
        ("SOLVER:\n  ACCUMULATION_STEPS: 4\n", "It has no gradient accumulation"),
        ("MODEL:\n  ROI_HEADS:\n    IMS_PER_BATCH: 4\n", "did you mean SOLVER.IMS_PER_BATCH?"),
        ("SOLVER:\n  BASE_LR: 1\n", "write 1.0"),
        ("SOLVER:\n  IMS_PER_BATCH: 8.0\n", "must be a whole number"),
        ("SOLVER:\n  IMS_PER_BATCH: eight\n", "got 'eight', a text"),
        ("SOLVER:\n  IMS_PER_BATCH: {A: 1}\n", "SOLVER.IMS_PER_BATCH is one value such as 16"),
        ("SOLVER: 3\n", "SOLVER is a section"),
        ("SOLVER:\n", "SOLVER is a section"),
        ("INPUT:\n  MIN_SIZE_TRAIN: 800\n", "must be a tuple"),
        ("MODEL:\n  MASK_ON: 1\n", "must be True or False"),
        ("MODEL:\n  POINT_HEAD:\n    NUM_FC: 3\n", "belongs to the project PointRend"),
        ("- a\n- b\n", "holds no config"),
        ("", "holds no config"),
        ("A: [1\n", "no YAML that Detectron2 reads"),
        ("A: 1\n---\nB: 2\n", "no YAML that Detectron2 reads"),
        ("\tA: 1\n", "no YAML that Detectron2 reads"),
        ("_BASE_: nowhere.yaml\n", "_BASE_ names nowhere.yaml, which is not there"),
        ("_BASE_: [1, 2]\n", "_BASE_ must be the path"),
        ("_BASE_: job.yaml\n", "_BASE_ leads back to itself (job.yaml -> job.yaml)"),
        ("A: &a [*a]\n", "no YAML that Detectron2 reads"),
        ("SOLVER:\n  STEPS: " + "[" * 3000 + "]" * 3000 + "\n", "nested too deeply"),
    ],
)
def test_what_detectron2_refuses(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(made(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "did you mean" in refused("mask_rcnn_R_50_FPN_2x.yaml")
    assert "check the path" in refused(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00A: 1")
    assert "not text in UTF-8" in refused(tmp_path / "bytes.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (5 << 20))
    assert "no config is" in refused(tmp_path / "large.yaml")
    assert "no file" in refused(tmp_path)


def test_a_loop_of_two_files(tmp_path: Path) -> None:
    made(tmp_path, "_BASE_: two.yaml\n", "one.yaml")
    made(tmp_path, "_BASE_: one.yaml\n", "two.yaml")
    assert "one.yaml -> two.yaml -> one.yaml" in refused(tmp_path / "one.yaml")


def test_many_aliases_do_not_take_for_ever(tmp_path: Path) -> None:
    levels = "\n".join(f"L{n}: &l{n} {{{', '.join(f'K{k}: *l{n - 1}' for k in range(9))}}}" for n in range(1, 9))
    assert "keys" in refused(made(tmp_path, f"L0: &l0 {{A: 1}}\n{levels}\n"))


def test_samples_are_all_read() -> None:
    for name in NAMES:
        assert set(read(SAMPLES / name).values) == set(DEFAULTS)


def test_all_dead_keys_are_told_in_one_run(tmp_path: Path) -> None:
    file = tmp_path / "dead.yaml"
    file.write_text("MODEL:\n  RESNET:\n    DEPTH: 50\nSOLVER:\n  IMS_PER_BTCH: 4\n  BASE_LR: fast\n")
    with pytest.raises(InputError) as told:
        read(file)
    said = str(told.value)
    assert "\n" not in said
    for part in (
        "dead.yaml:3: MODEL.RESNET.DEPTH",
        "MODEL.RESNETS.DEPTH",
        "dead.yaml:5: SOLVER.IMS_PER_BTCH",
        ":6: SOLVER.B",
    ):
        assert part in said
    with pytest.raises(InputError, match=r"SOLVER\.A .*SOLVER\.B "):
        read("COCO-Detection/retinanet_R_50_FPN_3x.yaml", ["SOLVER.A", "1", "SOLVER.B", "2"])


def test_of_very_many_mistakes_some_are_told(tmp_path: Path) -> None:
    file = tmp_path / "dead.yaml"
    file.write_text("SOLVER:\n" + "".join(f"  NOT_A_KEY_{number}: 1\n" for number in range(30)))
    with pytest.raises(
        InputError, match=r"; and 20 more; where a project adds such keys, give its training script: .*dead.yaml$"
    ):
        read(file)
