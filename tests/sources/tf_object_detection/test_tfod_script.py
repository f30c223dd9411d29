"""Scripts that edit a pipeline.config through the API are followed, never run."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfod_samples import SSD

from oomproof.errors import InputError
from oomproof.sources import open_job
from oomproof.sources.settings import resolve
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.job import ObjectDetectionJob
from oomproof.sources.tf_object_detection.script.script import ScriptConfig, is_script, read_script

IMPORTS = "from object_detection.utils import config_util\nfrom object_detection.protos import pipeline_pb2\n"


def follow(folder: Path, code: str) -> ScriptConfig:
    (folder / "pipeline.config").write_text(SSD)
    script = folder / "edit.py"
    script.write_text(IMPORTS + code)
    return read_script(script)


def config_of(found: ScriptConfig) -> Config:
    assert found.config is not None
    return found.config


def test_config_util_and_attributes(tmp_path: Path) -> None:
    found = follow(
        tmp_path,
        """
PATH = "pipeline.config"
BATCH = 2 * 4
configs = config_util.get_configs_from_pipeline_file(PATH)
configs["train_config"].batch_size = BATCH
model_config = configs["model"]
model_config.ssd.num_classes = 7
configs["train_input_config"].tf_record_input_reader.input_path[:] = ["a.record", "b.record"]
configs["eval_input_configs"][0].label_map_path = "new.pbtxt"
configs["train_config"].freeze_variables.append("Feature.*")
pipeline_config = config_util.create_pipeline_proto_from_configs(configs)
pipeline_config.train_config.num_steps = 100
""",
    )
    config = config_of(found)
    assert found.notes == ()
    assert config.value("train_config.batch_size") == 8
    assert config.value("model.ssd.num_classes") == 7
    assert config.value("train_input_reader.tf_record_input_reader.input_path") == ("a.record", "b.record")
    assert config.value("eval_input_reader[0].label_map_path") == "new.pbtxt"
    assert config.value("train_config.freeze_variables") == ("Feature.*",)
    assert config.value("train_config.num_steps") == 100
    assert "# of all GPUs" in config.text


def test_text_format_as_tutorials_write_it(tmp_path: Path) -> None:
    found = follow(
        tmp_path,
        """
pipeline_config = pipeline_pb2.TrainEvalPipelineConfig()
with tf.io.gfile.GFile("pipeline.config", "r") as f:
    proto_str = f.read()
    text_format.Merge(proto_str, pipeline_config)
text_format.Merge("train_config { num_steps: 9 }", pipeline_config)
pipeline_config.train_config.batch_size = 4
pipeline_config.train_input_reader.tf_record_input_reader.input_path[0] = "mine.record"
pipeline_config.model.ssd.image_resizer.fixed_shape_resizer.ClearField("width")
""",
    )
    config = config_of(found)
    assert found.notes == ()
    assert config.value("train_config.batch_size") == 4
    assert config.value("train_config.num_steps") == 9
    assert config.value("train_input_reader.tf_record_input_reader.input_path") == ("mine.record",)
    assert config.value("model.ssd.image_resizer") == {"fixed_shape_resizer": {"height": 300}}


def test_functions_flags_and_branches(tmp_path: Path) -> None:
    found = follow(
        tmp_path,
        """
flags.DEFINE_string("pipeline_config_path", "pipeline.config", "the file")
FLAGS = flags.FLAGS
SMALL = True

def shrink(config, by):
    if SMALL:
        config.train_config.batch_size = 2
    else:
        config.train_config.batch_size = 200

def main(_):
    configs = config_util.get_configs_from_pipeline_file(FLAGS.pipeline_config_path)
    pipeline = config_util.create_pipeline_proto_from_configs(configs)
    shrink(pipeline, 2)

tf.app.run()
""",
    )
    assert config_of(found).value("train_config.batch_size") == 2


def test_overrides(tmp_path: Path) -> None:
    found = follow(
        tmp_path,
        """
configs = config_util.get_configs_from_pipeline_file("pipeline.config")
configs = config_util.merge_external_params_with_configs(configs, kwargs_dict={
    "batch_size": 3, "train_steps": 50, "learning_rate": 0.04, "num_classes": 5, "label_map_path": "x.pbtxt",
    "train_input_path": "y.record", "model.ssd.image_resizer.fixed_shape_resizer.height": 512,
    "image_size": 640, "train_config.num_steps": 70, "train_config.unpad_groundtruth_tensors": False,
})
""",
    )
    config = config_of(found)
    assert config.value("train_config.batch_size") == 3
    assert config.value("train_config.num_steps") == 70
    assert config.value("model.ssd.num_classes") == 5
    assert config.value("train_input_reader.label_map_path") == config.value("eval_input_reader[0].label_map_path")
    assert config.value("train_input_reader.tf_record_input_reader.input_path") == ("y.record",)
    assert config.value("model.ssd.image_resizer.fixed_shape_resizer.height") == 512
    rate = "train_config.optimizer.momentum_optimizer.learning_rate.cosine_decay_learning_rate"
    assert config.value(f"{rate}.learning_rate_base") == 0.04
    assert config.value(f"{rate}.warmup_learning_rate") == pytest.approx(0.0001)  # half of its default, as the rate
    assert len(found.notes) == 2
    assert "edit.py:8: image_size does nothing: config_util has no such override" in found.notes[0]
    assert "train_config.unpad_groundtruth_tensors cannot be overridden" in found.notes[1]


def test_attributes_that_do_not_exist_are_named_all_of_them(tmp_path: Path) -> None:
    found = follow(
        tmp_path,
        """
configs = config_util.get_configs_from_pipeline_file("pipeline.config")
input_config = configs["train_input_config"]
input_config.input_height = 512
configs["train_config"].batch_sise = 4
configs["train_config"].batch_size = "four"
configs["train_config"].optimizer = 3
configs["train_config"].batch_size = 6
""",
    )
    notes = found.notes
    assert config_of(found).value("train_config.batch_size") == 6
    assert len(notes) == 4
    assert "edit.py:6: train_input_reader.input_height does not exist" in notes[0]
    assert "does not exist: the script stops here with an AttributeError. The size of images is model.ssd" in notes[0]
    assert "did you mean batch_size" in notes[1]
    assert "expected a whole number of 0 or more, got 'four'" in notes[2]
    assert "is a message, which protobuf does not let be assigned" in notes[3]


def test_a_snippet_without_its_beginning(tmp_path: Path) -> None:
    """As pages have it: nothing says what input_config is, yet no input config has such a field."""
    found = follow(tmp_path, "input_config.input_height = 512\ninput_config.input_width = size\n")
    assert found.config is None
    assert len(found.notes) == 2
    assert all("does not exist: the script stops here with an AttributeError" in note for note in found.notes)


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    found = follow(
        tmp_path,
        """
configs = config_util.get_configs_from_pipeline_file("pipeline.config")
configs["train_config"].batch_size = compute()
other = config_util.get_configs_from_pipeline_file(sys.argv[1])
""",
    )
    assert config_of(found).value("train_config.batch_size") == 24
    assert "train_config.batch_size = compute() is not known before the script runs: taken as 24" in found.notes[0]
    assert "edit.py:6: which file is read is not known here" in found.notes[1]


def test_which_files_are_scripts(tmp_path: Path) -> None:
    def made(text: str) -> Path:
        path = tmp_path / "some.py"
        path.write_text(text)
        return path

    assert is_script(made(IMPORTS))
    assert is_script(made("import object_detection.builders\n"))
    assert not is_script(made("import torch\n"))
    assert not is_script(made("def broken(:\n"))
    with pytest.raises(InputError, match="not Python that can be read"):
        read_script(made("def broken(:\n"))


def opened(folder: Path, code: str, **given: str) -> ObjectDetectionJob:
    follow(folder, code)
    job = open_job(str(folder / "edit.py"), given=given)
    assert isinstance(job, ObjectDetectionJob)
    return job


READ = 'configs = config_util.get_configs_from_pipeline_file("pipeline.config")\n'


def test_a_script_is_a_job(tmp_path: Path) -> None:
    job = opened(
        tmp_path, f'{READ}configs["train_config"].batch_size = 6\nconfigs["model"].ssd.num_classes = count()\n'
    )
    settings = resolve(job, {})
    assert settings["batch_size"] == 6
    assert "batch_size: 6" in job.step_request(settings).text
    [note] = job.told
    assert "model.ssd.num_classes = count() is not known before the script runs: taken as 3" in note
    with pytest.raises(InputError, match="--write FILE"):
        _ = job.place


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (f'{READ}configs["train_input_config"].input_height = 512\n', r"edit.py has 1 mistake: .*edit.py:4: "),
        ("input_config.input_height = 512\ninput_config.input_width = 512\n", r"edit.py has 2 mistakes: "),
        ("configs = config_util.get_configs_from_pipeline_file(sys.argv[1])\n", "give the pipeline.config itself"),
        (f'{READ}configs["train_config"].batch_size = count()\n', "give --set batch_size=VALUE"),
        (
            f'{READ}configs["model"].ssd.image_resizer.fixed_shape_resizer.height = side()\n',
            "give --set image_size=VALUE",
        ),
    ],
)
def test_a_script_that_stops_or_leaves_open_what_decides_is_refused(tmp_path: Path, code: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        opened(tmp_path, code)


def test_what_a_script_leaves_open_can_be_given(tmp_path: Path) -> None:
    job = opened(tmp_path, f'{READ}configs["train_config"].batch_size = count()\n', batch="4")
    assert resolve(job, {"batch": "4"})["batch_size"] == 4
    known_later = f'{READ}configs["train_config"].batch_size = count()\nconfigs["train_config"].batch_size = 6\n'
    assert resolve(opened(tmp_path, known_later), {})["batch_size"] == 6
