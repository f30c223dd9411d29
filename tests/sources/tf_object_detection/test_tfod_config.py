"""pipeline.configs are read: values set and by default, what is wrong with a file, and what does nothing in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfod_samples import MASK_RCNN, SSD

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.config import config_of_text, read_config, recognise
from oomproof.sources.tf_object_detection.config.dead_fields import tensorflow_of
from oomproof.sources.tf_object_detection.config.dead_rules import NEVER_READ, NOT_BY_TF1, NOT_BY_TF2
from oomproof.sources.tf_object_detection.config.inventions import advice
from oomproof.sources.tf_object_detection.config.schema import every_message, message_type

SHARED = Path(__file__).parents[4] / "shared" / "tfod_configs"


def test_values_are_those_of_the_file_or_the_defaults() -> None:
    config = config_of_text(SSD, "ssd.config")
    assert config.value("train_config.batch_size") == 24
    assert config.value("train_config.fine_tune_checkpoint_version") == "V2"
    assert config.value("train_config.optimizer.use_moving_average") is False
    assert config.value("model.ssd.anchor_generator.ssd_anchor_generator.aspect_ratios") == (1.0, 2.0, 0.5)
    assert config.value("train_input_reader.tf_record_input_reader.input_path[0]") == "train-?????-of-00100.record"
    assert config.value("eval_input_reader[0].shuffle") is False
    assert config.value("model.ssd.image_resizer") == {"fixed_shape_resizer": {"height": 300, "width": 300}}
    # by default
    assert config.value("train_input_reader.max_number_of_boxes") == 100
    assert config.value("train_input_reader.shuffle_buffer_size") == 2048
    assert config.value("train_config.freeze_variables") == ()
    assert config.value("model.faster_rcnn.second_stage_batch_size") == 64
    assert config.value("model.faster_rcnn") is None
    assert config.value("train_input_reader.mask_type") == "NUMERICAL_MASKS"
    assert not config.is_set("train_input_reader.max_number_of_boxes")


def test_oneofs_and_places() -> None:
    config = config_of_text(SSD, "ssd.config")
    assert config.which("model") == "ssd"
    assert config.which("model.ssd.image_resizer") == "fixed_shape_resizer"
    assert config.which("train_config.optimizer") == "momentum_optimizer"
    assert config.which("train_input_reader") == "tf_record_input_reader"
    assert config.which("model.ssd.loss") == ""
    assert config.where("train_config.batch_size") == "ssd.config:27:3"
    assert config.where("train_config.num_steps") == "ssd.config"


def test_a_moving_average_is_kept_unless_the_file_says_no() -> None:
    assert config_of_text("", "a").value("train_config.optimizer.use_moving_average") is True


def test_all_mistakes_come_in_one_run() -> None:
    text = """model { ssd { num_classes: "three" feture_extractor { } } }
train_config {
  batch_size: -1
  use_bfloat16: yes
  fine_tune_checkpoint_version: V3
  optimizer: 3
  freeze_variables: [1]
  num_steps: [1, 2]
  shuffle_buffer_size: 3
}
train_imput_reader { input_height: 3 }
"""
    with pytest.raises(InputError) as error:
        config_of_text(text, "p.config")
    said = str(error.value)
    assert "\n" not in said
    for part in (
        "p.config has 10 mistakes: ",
        '1:28: model.ssd.num_classes: expected a whole number, got the text "three"',
        "1:36: model.ssd.feture_extractor does not exist: the API refuses the file; did you mean feature_extractor",
        "3:15: train_config.batch_size: expected a whole number of 0 or more, got -1",
        "4:17: train_config.use_bfloat16: expected true or false, got yes",
        "5:33: train_config.fine_tune_checkpoint_version: expected one of UNKNOWN, V1, V2, got V3",
        "6:14: train_config.optimizer: expected a message of type Optimizer in braces, got 3",
        "7:22: train_config.freeze_variables[0]: expected a text in quotes, got 1",
        "8:14: train_config.num_steps takes one value, not a list",
        "did you mean train_input_reader.shuffle_buffer_size",
        "11:1: train_imput_reader does not exist: the API refuses the file; did you mean train_input_reader",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model {", "p:1:8: expected '}' for the '{' in line 1, got the end of the file"),
        ("model { ssd {\n }\n", "p:3:1: expected '}' for the '{' in line 1, got the end of the file"),
        ("model { } }", "p:1:11: expected the name of a field, got '}'"),
        ("train_config { batch_size 3 }", "p:1:27: expected ':' or '{' after batch_size, got '3'"),
        ("train_config { batch_size: }", "p:1:28: expected a value, got '}'"),
        ("train_config { fine_tune_checkpoint: 'a\n' }", "p:1:38: expected a value, got a text that is not closed"),
        ("train_config { freeze_variables: ['a' 'b' 3] }", "p:1:43: expected ',' or ']' in a list, got '3'"),
        ("train_config { [a.b/c.D] { } }", "p:1:16: train_config.[a.b/c.D] is an extension"),
        ("\ufeffmodel { }", "p:1:1: the file begins with a byte-order mark"),
        ("a{" * 65, "p:1:130: more than 64 messages within each other"),
        ("model { }\x00", "p:1:10: expected the name of a field, got '\\x00'"),
    ],
)
def test_a_broken_text_is_said_with_line_and_column(text: str, expected: str) -> None:
    with pytest.raises(InputError) as error:
        config_of_text(text, "p")
    assert expected in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist; check the path"):
        read_config(tmp_path / "none.config")
    with pytest.raises(InputError, match="is a folder"):
        read_config(tmp_path)
    binary = tmp_path / "binary.config"
    binary.write_bytes(b"model { \xff }")
    with pytest.raises(InputError, match=r"is not a text in UTF-8 \(byte 8\)"):
        read_config(binary)
    large = tmp_path / "large.config"
    large.write_bytes(b"#" * (4 << 20) + b"#")
    with pytest.raises(InputError, match="is larger than 4 MiB"):
        read_config(large)


def test_a_file_keeps_its_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "windows.config"
    path.write_bytes(SSD.replace("\n", "\r\n").encode())
    assert read_config(path).text.encode() == path.read_bytes()


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (SSD, True),
        (MASK_RCNN, True),
        ("train_config: {\n batch_size 3", True),  # broken, and still one: its mistakes can be told
        ("# only\n\nmodel <\n  center_net <\n", True),
        ('item {\n  id: 1\n  name: "cat"\n}\n', False),  # a label map
        ('name: "net"\nlayer {\n  type: "Input"\n}\n', False),  # of Caffe
        ('model {\n  name: "x"\n}\n', False),
        ("", False),
        ("import model\nmodel = {}\n", False),
    ],
)
def test_a_pipeline_config_is_recognised(text: str, is_one: bool) -> None:
    assert recognise(text) is is_one


# -- fields that do nothing --------------------------------------------------------------------------------------


def dead(text: str, tensorflow: int | None = None) -> dict[str, str]:
    return {each.path: each.reason for each in config_of_text(text, "p").dead_fields(tensorflow)}


def test_dead_fields_of_a_tf1_config() -> None:
    found = config_of_text(MASK_RCNN, "mask.config").dead_fields()
    assert [each.path for each in found] == [
        "model.faster_rcnn.second_stage_box_predictor.mask_rcnn_box_predictor.dropout_keep_probability",
        "train_config.batch_queue_capacity",
        "train_config.load_all_detection_checkpoint_vars",
    ]
    assert str(found[1]).startswith("mask.config:23:3: train_config.batch_queue_capacity does nothing: deprecated")


def test_dead_fields_of_the_same_config_under_tf2() -> None:
    found = {each.path: each for each in config_of_text(MASK_RCNN, "mask.config").dead_fields(2)}
    assert "no memory is saved" in found["train_config.freeze_variables"].reason
    stops = found["train_config.load_all_detection_checkpoint_vars"]
    assert stops.stops
    assert "cannot be used: TF2 stops with a ValueError" in str(stops)


def test_what_does_something_is_not_called_dead() -> None:
    text = """train_config { fine_tune_checkpoint: "a" from_detection_checkpoint: true use_bfloat16: false
      max_number_of_boxes: 3 optimizer { moving_average_decay: 0.9 } }
    train_input_reader { shuffle_buffer_size: 3 max_number_of_boxes: 3 load_instance_masks: true mask_type: PNG_MASKS
      num_parallel_batches: 2 } """
    assert set(dead(text)) == {"train_config.max_number_of_boxes"}


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("train_config { use_bfloat16: true }", "train_config.use_bfloat16", "on a TPU only"),
        (
            "train_config { from_detection_checkpoint: true }",
            "train_config.from_detection_checkpoint",
            "no fine_tune_checkpoint",
        ),
        (
            'train_config { fine_tune_checkpoint: "a" fine_tune_checkpoint_type: "full" from_detection_checkpoint: 1 }',
            "train_config.from_detection_checkpoint",
            "fine_tune_checkpoint_type is set",
        ),
        (
            "eval_input_reader { shuffle: 0 shuffle_buffer_size: 3 }",
            "eval_input_reader[0].shuffle_buffer_size",
            "shuffle is false",
        ),
        ("train_input_reader { mask_type: PNG_MASKS }", "train_input_reader.mask_type", "load_instance_masks is false"),
        (
            "model { faster_rcnn { hard_example_miner { } second_stage_batch_size: 8 } }",
            "model.faster_rcnn.second_stage_batch_size",
            "trains on all first_stage_max_proposals",
        ),
        (
            "train_config { optimizer { use_moving_average: 0 moving_average_decay: 1 } }",
            "train_config.optimizer.moving_average_decay",
            "use_moving_average is false",
        ),
        ("train_config { batch_size: 1 batch_size: 2 }", "train_config.batch_size", "p:1:30 comes later and counts"),
        (
            "model { ssd { } faster_rcnn { } }",
            "model.ssd",
            "p:1:17 comes later and counts",
        ),
    ],
)
def test_a_field_is_dead_for_a_reason(text: str, path: str, reason: str) -> None:
    assert reason in dead(text)[path]


def test_every_deprecated_field_is_known_to_be_dead() -> None:
    deprecated = {
        f"{kind.name}.{each.name}" for kind in every_message() for each in kind.fields.values() if each.deprecated
    }
    assert deprecated - set(NEVER_READ) == {"TrainConfig.from_detection_checkpoint"}  # which counts at times


def test_every_dead_field_exists() -> None:
    for path in (*NEVER_READ, *NOT_BY_TF1, *NOT_BY_TF2):
        kind, _, name = path.rpartition(".")
        assert name in message_type(kind).fields, path


@pytest.mark.parametrize(
    ("model", "version"),
    [
        ('ssd { feature_extractor { type: "ssd_mobilenet_v2_keras" } }', 2),
        ('ssd { feature_extractor { type: "ssd_inception_v2" } }', 1),
        ('faster_rcnn { feature_extractor { type: "faster_rcnn_resnet50_keras" } }', 2),
        ("center_net { }", 2),
        ("ssd { }", 0),
        ("", 0),
    ],
)
def test_the_tensorflow_of_a_config_follows_from_its_model(model: str, version: int) -> None:
    assert tensorflow_of(config_of_text(f"model {{ {model} }}", "p")) == version


# -- inventions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "train_input_reader.input_height", "train_input_reader.input_width", "train_config.num_gpus",
        "model.image_size",
        "train_config.mixed_precision", "train_config.gradient_accumulation_steps", "train_config.gpu_memory_fraction",
        "train_config.num_epochs", "train_config.learning_rate", "train_config.batch_size_per_gpu",
        "train_config.gradient_checkpointing", "train_config.allow_growth", "train_config.fp16",
    ],
)  # fmt: skip
def test_an_invention_is_refused_with_what_does_it(path: str) -> None:
    section, name = path.rsplit(".", 1)
    with pytest.raises(InputError) as error:
        config_of_text(f"{section} {{ {name}: 1 }}", "p")
    assert f"{path} does not exist: the API refuses the file. " in str(error.value)


@pytest.mark.parametrize(
    ("path", "option"),
    [
        ("train_config.gradient_accumulation_steps", "--accumulate"),
        ("train_config.fp16", "--precision"),
        ("train_config.gradient_checkpointing", "--recompute"),
    ],
)
def test_what_the_api_lacks_is_named_with_the_option_that_has_it(path: str, option: str) -> None:
    assert f"`oomproof run pipeline.config {option}" in advice(path)
    assert option in read_help_of_run()


def read_help_of_run() -> str:
    from typer.testing import CliRunner

    from oomproof.cli import app

    return CliRunner().invoke(app, ["run", "--help"]).output


def test_no_field_of_the_api_is_taken_for_an_invention() -> None:
    wrong = [
        f"{kind.name}.{name}"
        for kind in every_message()
        for name in kind.fields
        if advice(f"{'train_config' if kind.name == 'TrainConfig' else kind.name}.{name}")
    ]
    # These mean something else where they are; advice is only asked for names that a message lacks.
    assert wrong == [
        *(f"RandomPadImage.{least}_image_{side}" for least in ("min", "max") for side in ("height", "width")),
        "TrainConfig.use_bfloat16",
    ]


def test_the_published_configs_are_read_as_they_are() -> None:
    files = sorted(SHARED.glob("*/*.config"))
    if not files:
        pytest.skip("../shared/tfod_configs, with configs that the API publishes, is not here")
    for file in files:
        config = read_config(file)
        assert config.text.encode() == file.read_bytes()
        assert recognise(config.text)
        assert tensorflow_of(config) == int(file.parent.name[-1])
        assert config.with_value("train_config.batch_size", 3).value("train_config.batch_size") == 3
