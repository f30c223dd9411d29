"""Scripts around a pipeline.config as they are mostly written: several configs, choices, notebooks, own loops."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfod_samples import SSD

from oomproof.errors import InputError
from oomproof.sources import open_job
from oomproof.sources.settings import resolve
from oomproof.sources.tf_object_detection.job import ObjectDetectionJob

IMPORTS = """
from object_detection.utils import config_util
from object_detection.protos import pipeline_pb2
from google.protobuf import text_format
"""
READ = """
pipeline = pipeline_pb2.TrainEvalPipelineConfig()
with tf.io.gfile.GFile("pipeline.config", "r") as f:
    text_format.Merge(f.read(), pipeline)
"""
CONFIGS = 'configs = config_util.get_configs_from_pipeline_file("pipeline.config")\n'


def opened(folder: Path, code: str, **given: str) -> ObjectDetectionJob:
    (folder / "pipeline.config").write_text(SSD)
    script = folder / "edit.py"
    script.write_text(IMPORTS + code)
    job = open_job(str(script), given=given)
    assert isinstance(job, ObjectDetectionJob)
    resolve(job, given)
    return job


FOLLOWED = {
    "one config is looked at and another one edited": f"""
print(config_util.get_configs_from_pipeline_file("pipeline.config"))
seen = config_util.get_configs_from_pipeline_file("pipeline.config")
{READ}
pipeline.train_config.batch_size = 6
with tf.io.gfile.GFile("new.config", "wb") as f:
    f.write(text_format.MessageToString(pipeline))
""",
    "two configs of which one is written": f"""
{CONFIGS}
configs["train_config"].batch_size = 2
{READ}
pipeline.train_config.batch_size = 6
text_format.MessageToString(pipeline)
""",
    "a notebook": f"""
files = {{"CONFIG": "pipeline.config"}}
!cp zoo/pipeline.config {{files["CONFIG"]}}
if os.name == "nt":
    !copy zoo\\pipeline.config .
{READ}
pipeline.train_config.batch_size = 6
""",
    "a config that is made in the call": """
with open("pipeline.config") as f:
    pipeline = text_format.Parse(f.read(), pipeline_pb2.TrainEvalPipelineConfig())
pipeline.train_config.batch_size = 6
""",
    "hparams": f"""
{CONFIGS}
hparams = tf.contrib.training.HParams(batch_size=int(6), train_steps=20)
configs = config_util.merge_external_params_with_configs(configs, hparams)
""",
    "hparams of the API": f"""
{CONFIGS}
configs["train_config"].batch_size = 6
hparams = model_hparams.create_hparams(None)
configs = config_util.merge_external_params_with_configs(configs, hparams, kwargs_dict={{}})
""",
    "keys of overrides that are made": f"""
{CONFIGS}
meta = configs["model"].WhichOneof("model")
keys = {{"model.{{}}.num_classes".format(meta): count_labels(), "train_config.batch_size": 6}}
configs = config_util.merge_external_params_with_configs(configs, kwargs_dict=keys)
""",
    "both ways the same": f"""
{CONFIGS}
if use_new:
    batch = 6
    configs["train_config"].batch_size = batch
else:
    batch = 6
    configs["train_config"].batch_size = batch
configs["train_config"].batch_size = batch
""",
    "a way that ends": f"""
{CONFIGS}
if not files_are_there():
    configs["train_config"].batch_size = 3
    raise FileNotFoundError
else:
    configs["train_config"].batch_size = 6
""",
    "a way that ends behind the other": f"""
{CONFIGS}
configs["train_config"].batch_size = 6
if files_are_there():
    configs["train_config"].num_steps = 6
else:
    configs["train_config"].batch_size = 3
    sys.exit(1)
""",
    "what is run as a script": f"""
if __name__ == "__main__":
    {CONFIGS}
    configs["train_config"].batch_size = 6
""",
}


@pytest.mark.parametrize("way", FOLLOWED)
def test_what_scripts_mostly_do(way: str, tmp_path: Path) -> None:
    assert opened(tmp_path, FOLLOWED[way]).config.value("train_config.batch_size") == 6


ASKED = {
    "a batch of two ways": (
        f"{CONFIGS}train = configs['train_config']\n"
        "if big:\n    train.batch_size = 64\nelse:\n    train.batch_size = 4\n",
        r"«big» decides train_config.batch_size.*give --set batch_size=VALUE",
    ),
    "a batch of one way": (
        f"{CONFIGS}if big:\n    configs['train_config'].batch_size = 64\n",
        r"«big» decides train_config.batch_size",
    ),
    "a name of two ways": (
        f"{CONFIGS}batch = 4\nif big:\n    batch = 64\nconfigs['train_config'].batch_size = batch\n",
        r"batch_size = batch is not known",
    ),
    "overrides of two ways": (
        f"{CONFIGS}keys = {{}}\nif big:\n    keys['batch_size'] = 64\n"
        "configs = config_util.merge_external_params_with_configs(configs, kwargs_dict=keys)\n",
        r"overrides are not known",
    ),
    "an optimizer of two ways": (
        f"{CONFIGS}if big:\n    configs['train_config'].optimizer.adam_optimizer.epsilon = 0.1\n",
        r"«big» decides train_config.optimizer,.*give --set optimizer=VALUE",
    ),
    "a network of two ways": (
        f"{CONFIGS}if big:\n    configs['model'].ssd.feature_extractor.type = 'ssd_resnet50_v1_fpn_keras'\n",
        r"decides model.ssd.feature_extractor.type.*give the pipeline.config itself",
    ),
    "a network that is not known": (
        f"{CONFIGS}configs['model'].ssd.feature_extractor.type = name\n",
        r"feature_extractor.type = name is not known.*give the pipeline.config itself",
    ),
    "hparams that are not known": (
        f"{CONFIGS}configs = config_util.merge_external_params_with_configs(configs, load())\n",
        r"what load\(\) overrides is not known",
    ),
    "a text that is not known": (
        "p = pipeline_pb2.TrainEvalPipelineConfig()\ntext_format.Merge(Path(x).read_text(), p)\n",
        r"the text Path\(x\).read_text\(\) is not known",
    ),
    "several configs that differ": (
        "for batch in (2, 4):\n"
        "    configs = config_util.get_configs_from_pipeline_file('pipeline.config')\n"
        "    configs['train_config'].batch_size = batch\n"
        "    config_util.save_pipeline_config(config_util.create_pipeline_proto_from_configs(configs), str(batch))\n",
        r"makes 2 configs that differ",
    ),
    "a loop of its own": (
        f"{CONFIGS}model = model_builder.build(model_config=configs['model'], is_training=True)\nbatch_size = 4\n",
        r"trains it by a loop of its own.*give --set batch_size=VALUE",
    ),
}


@pytest.mark.parametrize("way", ASKED)
def test_what_a_run_decides_is_asked_for(way: str, tmp_path: Path) -> None:
    code, said = ASKED[way]
    with pytest.raises(InputError, match=said):
        opened(tmp_path, code)


def test_what_is_asked_for_can_be_given(tmp_path: Path) -> None:
    code, _ = ASKED["a loop of its own"]
    assert any("which is not forecast" in note for note in opened(tmp_path, code, batch_size="4").told)
    opened(tmp_path, ASKED["an optimizer of two ways"][0], optimizer="adam_optimizer")
