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


BATCH, HEIGHT, WIDTH = (
    "train_config.batch_size",
    "model.ssd.image_resizer.fixed_shape_resizer.height",
    "model.ssd.image_resizer.fixed_shape_resizer.width",
)
AS_IN = f'{READ}train = configs["train_config"]\nresizer = configs["model"].ssd.image_resizer.fixed_shape_resizer\n'
"""24 images of 300 x 300"""
LOOP = "for reader in p.eval_input_reader:\n    reader.shuffle = True\n"
FILES = 'F = {"CONFIG": "pipeline.config"}\nconfigs = config_util.get_configs_from_pipeline_file(F["CONFIG"])\n'
PROTO = 'p = pipeline_pb2.TrainEvalPipelineConfig()\ntext_format.Merge(open("pipeline.config").read(), p)\n'
READS_IN_A_FUNCTION = """
def edit(path, batch, *, side=320):
    p = pipeline_pb2.TrainEvalPipelineConfig()
    with open(path) as file:
        text_format.Merge(file.read(), p)
    p.train_config.batch_size = batch
    p.model.ssd.image_resizer.fixed_shape_resizer.height = side
parser.add_argument("--batch", type=int, default=3)
edit("pipeline.config", args.batch)
"""
CLASS = """
class Editor:
    def __init__(self, path):
        self.configs = config_util.get_configs_from_pipeline_file(path)
        self.by = 4
    def shrink(self, more):
        self.configs["train_config"].batch_size //= self.by + more
editor = Editor("pipeline.config")
editor.shrink(2)
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"{AS_IN}resizer.height, resizer.width = 512, 640\n", {HEIGHT: 512, WIDTH: 640}),
        (f'{AS_IN}sizes = {{"s": (64, 96)}}\nh, w = sizes["s"]\nresizer.height = h\nresizer.width = w\n', {WIDTH: 96}),
        (f"{AS_IN}a, b = 1, 2\na, b = b, a\ntrain.batch_size = a\n", {BATCH: 2}),
        (f"{AS_IN}resizer.height = resizer.width = 512\n", {HEIGHT: 512, WIDTH: 512}),
        (f"{AS_IN}train.batch_size //= 8\n", {BATCH: 3}),
        (f"{AS_IN}train.batch_size = max(1, train.batch_size // 5)\n", {BATCH: 4}),
        (f"{AS_IN}train.batch_size = 2 if resizer.height > 299 else 8\n", {BATCH: 2}),
        (f"{AS_IN}batch = 1\nfor _ in range(3):\n    batch *= 2\ntrain.batch_size = batch\n", {BATCH: 8}),
        (f"{AS_IN}for name, value in [('batch_size', 5)]:\n    setattr(train, name, value)\n", {BATCH: 5}),
        (
            f'{AS_IN}more = dict(batch_size=2)\nover = {{"batch_size": 6}}\nover["train_steps"] = 5\n'
            "configs = config_util.merge_external_params_with_configs(configs, kwargs_dict=over)\n",
            {BATCH: 6, "train_config.num_steps": 5},
        ),
        (
            f'{PROTO}if p.model.WhichOneof("model") == "faster_rcnn":\n    p.model.faster_rcnn.num_classes = 9\n'
            'elif p.model.HasField("ssd"):\n    p.model.ssd.num_classes = 4\n',
            {"model.ssd.num_classes": 4, "model.faster_rcnn": None},
        ),
        (
            f"{PROTO}other = pipeline_pb2.TrainEvalPipelineConfig()\nother.train_config.batch_size = 7\n"
            "p.MergeFrom(other)\n",
            {BATCH: 7, HEIGHT: 300},
        ),
        (
            f"{PROTO}other = pipeline_pb2.TrainEvalPipelineConfig()\nother.train_config.batch_size = 7\n"
            "p.train_config.CopyFrom(other.train_config)\n",
            {BATCH: 7, "train_config.optimizer": None},
        ),
        (f"{PROTO}{LOOP}", {"eval_input_reader[0].shuffle": True}),
        (
            f"{PROTO}step = p.train_config.data_augmentation_options.add()\nstep.ssd_random_crop.SetInParent()\n"
            "step.random_crop_image.min_area = 0.5\n",
            {"train_config.data_augmentation_options[1].random_crop_image.min_area": 0.5},
        ),
        (READS_IN_A_FUNCTION, {BATCH: 3, HEIGHT: 320}),
        (FILES, {BATCH: 24}),
        (f"{AS_IN}def edit():\n    train.batch_size = 5\nedit()\n", {BATCH: 5}),
        (CLASS, {BATCH: 4}),
    ],
)  # fmt: skip
def test_what_scripts_do_is_followed(tmp_path: Path, code: str, expected: dict[str, object]) -> None:
    config = config_of(follow(tmp_path, code))
    assert {path: config.value(path) for path in expected} == expected


@pytest.mark.parametrize(
    "code",
    [
        f"{AS_IN}while free() > 1:\n    train.batch_size += 1\n",
        f"{AS_IN}batch = 1\nfor _ in gpus():\n    batch *= 2\ntrain.batch_size = batch\n",
        f"{AS_IN}for batch in range(9):\n    if fits(batch):\n        break\ntrain.batch_size = batch\n",
        f"{AS_IN}train.batch_size, other = choose()\n",
        f"{AS_IN}config_util.merge_external_params_with_configs(configs, kwargs_dict=vars(given))\n",
        f'{AS_IN}config_util.merge_external_params_with_configs(configs, kwargs_dict={{"batch_size": count()}})\n',
        f"{AS_IN}setattr(train, name(), 5)\n",
        f"{PROTO}p.MergeFrom(elsewhere())\n",
        f"{AS_IN}def edit(batch):\n    train.batch_size = batch\nbatch = 2\nedit(*sizes())\n",
    ],
)
def test_what_only_a_run_tells_is_not_taken_for_known(tmp_path: Path, code: str) -> None:
    with pytest.raises(InputError, match=r"give (--set batch_size=VALUE|the pipeline\.config itself)"):
        opened(tmp_path, code)


OPENING = 'configs = config_util.get_configs_from_pipeline_file("pipeline.config")\n'


@pytest.mark.parametrize(
    "lines",
    [
        "x = [1]\n" + "x = [x, x]\n" * 20,
        "x = (1,)\n" + "x = (x, x)\n" * 20,
        'x = "ab"\n' + 'x = f"{x}{x}"\n' * 20,
        'x = "ab"\n' + "x = os.path.join(x, x)\n" * 20,
    ],
    ids=["lists", "tuples", "texts", "paths"],
)
def test_values_that_double_from_line_to_line_are_not_worked_out(tmp_path: Path, lines: str) -> None:
    """With sixty such lines they would have more parts than any memory holds."""
    found = follow(tmp_path, OPENING + lines + 'configs["train_config"].fine_tune_checkpoint = x\n')
    assert any("is not known before the script runs" in note for note in found.notes)


@pytest.mark.parametrize(
    "lines",
    [
        "".join(f"{'  ' * depth}for i{depth} in range(50):\n" for depth in range(4)) + "        x = 1\n",
        'configs["train_config"].data_augmentation_options.add()\n' * 4000,
        "".join(f"a{number} = 1\n" for number in range(11_000)),
    ],
    ids=["loops", "changes", "lines"],
)
def test_scripts_without_end_are_told(tmp_path: Path, lines: str) -> None:
    with pytest.raises(InputError, match=r"edit\.py does too much to be followed; give its pipeline.config instead"):
        follow(tmp_path, OPENING + lines)
