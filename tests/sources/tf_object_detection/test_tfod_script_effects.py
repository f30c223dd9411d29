"""What scripts change beside what a line names: in place, under another name, in another function, in a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_tfod_script_ways import CONFIGS, READ, opened

from oomproof.errors import InputError

BATCH = "pipeline.train_config.batch_size"
WRITE = 'with open("new.config", "w") as f:\n    f.write(text_format.MessageToString({}))\n'

FOLLOWED = {
    "a copy is changed and written": (
        f"{READ}new = copy.deepcopy(pipeline)\nnew.train_config.batch_size = 6\n{WRITE.format('new')}"
    ),
    "a copy is changed and not written": (
        f"{READ}{BATCH} = 6\nold = copy.deepcopy(pipeline)\nold.train_config.batch_size = 9\n{WRITE.format('pipeline')}"
    ),
    "a name of the script is changed by a function": (
        f"batch = 4\ndef more():\n    global batch\n    batch = 6\nmore()\n{READ}{BATCH} = batch\n"
    ),
    "a function makes a config of the script": (
        "def read():\n    global pipeline\n    pipeline = pipeline_pb2.TrainEvalPipelineConfig()\n"
        f'    text_format.Merge(open("pipeline.config").read(), pipeline)\nread()\n{BATCH} = 6\n'
    ),
    "a function that returns early": (
        "def edit(c, small):\n    if small:\n        c.train_config.batch_size = 6\n        return\n"
        f"    c.train_config.batch_size = 60\n{READ}edit(pipeline, True)\n"
    ),
    "a match": (
        f'{READ}match "ssd":\n    case "faster_rcnn":\n        {BATCH} = 1\n    case "ssd":\n        {BATCH} = 6\n'
    ),
    "calls in calls": (
        "def load(p):\n    c = pipeline_pb2.TrainEvalPipelineConfig()\n    text_format.Merge(open(p).read(), c)\n"
        "    return c\ndef edit(c, n):\n    c.train_config.batch_size = n\n    return c\n"
        "def save(c):\n    text_format.MessageToString(c)\nsave(edit(load('pipeline.config'), 6))\n"
    ),
    "a part by its name": (
        f"{READ}part = getattr(pipeline, 'train_config')\npart.batch_size = 6\nmodel = "
        "getattr(pipeline.model, pipeline.model.WhichOneof('model'))\nmodel.num_classes = 6\n"
    ),
    "items of a dictionary": (
        f'{READ}for name, value in {{"batch_size": 6}}.items():\n    pass\nparams = {{"batch_size": 6}}\n'
        "for name, value in params.items():\n    setattr(pipeline.train_config, name, value)\n"
    ),
    "a text of the config is read again": (
        f"{READ}{BATCH} = 6\ntext = text_format.MessageToString(pipeline)\n"
        "other = pipeline_pb2.TrainEvalPipelineConfig()\ntext_format.Merge(text, other)\n" + WRITE.format("other")
    ),
    "the file that was written is read again": (
        f"{READ}{BATCH} = 6\n{WRITE.format('pipeline').replace('new', 'pipeline')}{CONFIGS}"
        "configs['train_config'].num_steps = 9\n"
        "config_util.save_pipeline_config(config_util.create_pipeline_proto_from_configs(configs), 'out')\n"
    ),
    "a text for a part": f'{READ}text_format.Merge("batch_size: 6", pipeline.train_config)\n',
    "a field is remembered": f"{READ}old = {BATCH}\n{BATCH} = 1\n{BATCH} = old // 4\n",
    "a field is given to a function": (
        "def edit(c, n):\n    c.train_config.batch_size = 1\n    c.train_config.batch_size = n // 4\n"
        f"{READ}edit(pipeline, {BATCH})\n"
    ),
    "configs in a list": f"{READ}for each in [pipeline]:\n    each.train_config.batch_size = 6\n",
    "a path": (
        'base = Path(".")\nconfigs = config_util.get_configs_from_pipeline_file(str(base / "pipeline.config"))\n'
        "configs['train_config'].batch_size = 6\n"
    ),
    "the length of a list": (f'labels = [{{"name": name()}}, {{"name": "b"}}]\n{READ}{BATCH} = 3 * len(labels)\n'),
    "an argument is changed": (
        'parser.add_argument("--batch", default=3)\nargs = parser.parse_args()\nargs.batch *= 2\n'
        f"{READ}{BATCH} = args.batch\n"
    ),
}


@pytest.mark.parametrize("way", FOLLOWED)
def test_what_scripts_change_is_followed(way: str, tmp_path: Path) -> None:
    assert opened(tmp_path, FOLLOWED[way]).config.value("train_config.batch_size") == 6


def test_fields_are_cleared_and_lists_changed(tmp_path: Path) -> None:
    paths = "pipeline.train_input_reader.tf_record_input_reader.input_path"
    code = f"{READ}pipeline.train_config.Clear()\n{paths}.append('b')\n{paths}.insert(0, 'a')\n{paths}.pop(1)\n"
    config = opened(tmp_path, code).config
    assert not config.value("train_config")
    assert config.value("train_input_reader.tf_record_input_reader.input_path") == ("a", "b")


DOUBTFUL = {
    "a text that is edited and written first": (
        'text = open("pipeline.config").read()\nwith open("pipeline.config", "w") as f:\n'
        f'    f.write(re.sub("batch_size: [0-9]+", "batch_size: 64", text))\n{CONFIGS}'
    ),
    "a path whose text is edited": (
        'p = Path("pipeline.config")\np.write_text(p.read_text().replace("24", "64"))\n' + CONFIGS
    ),
    "a program that edits the file": f"os.system(\"sed -i 's/24/64/' pipeline.config\")\n{CONFIGS}",
    "a handler": (
        f"try:\n    import horovod\n    batch = 64\nexcept ImportError:\n    batch = 4\n{READ}{BATCH} = batch\n"
    ),
    "a config that changes after it was written": f"{READ}{BATCH} = 4\n{WRITE.format('pipeline')}{BATCH} = 400\n",
    "a list in place": f"sizes = [4, 8]\nsizes[0] = 64\n{READ}{BATCH} = sizes[0]\n",
    "the length of a list that grows": (f"labels = [name()]\nlabels.append(name())\n{READ}{BATCH} = len(labels)\n"),
    "the length of a list under two names": (
        f"labels = [name()]\nmore = labels\nmore.append(name())\n{READ}{BATCH} = len(labels)\n"
    ),
    "the length of a list that a function grows": (
        f"labels = [name()]\ndef more():\n    labels.append(name())\nmore()\n{READ}{BATCH} = len(labels)\n"
    ),
    "the length of a list of two ways": (
        f"labels = [name()]\nif big():\n    labels = [name(), name()]\n{READ}{BATCH} = len(labels)\n"
    ),
    "two names of a list": f"sizes = [4]\nothers = sizes\nothers[0] = 64\n{READ}{BATCH} = sizes[0]\n",
    "two names of a dictionary": f'p = {{"batch": 4}}\nq = p\nq["batch"] = 64\n{READ}{BATCH} = p["batch"]\n',
    "a dictionary that a function changes": (
        f'p = {{"batch": 4}}\ndef tune(d):\n    d["batch"] = 64\ntune(p)\n{READ}{BATCH} = p["batch"]\n'
    ),
    "a comprehension": f'{READ}[setattr(pipeline.train_config, name, 64) for name in ["batch_size"]]\n',
    "a function of another file": f"from helpers import edit\n{READ}edit(pipeline)\n",
    "what a function of another file returns": (
        f"from helpers import edit\n{READ}new = edit(pipeline)\n{WRITE.format('new')}"
    ),
    "a decorated function": f"@twice\ndef edit(c, n):\n    c.train_config.batch_size = n\n{READ}edit(pipeline, 4)\n",
    "a function without a name": f"edit = lambda c: setattr(c.train_config, 'batch_size', 64)\n{READ}edit(pipeline)\n",
    "a function that is given away": (
        f"def edit(c):\n    c.train_config.batch_size = 64\n{READ}list(map(edit, [pipeline]))\n"
    ),
    "a config in a list": f"{READ}all = [pipeline]\nall[0].train_config.batch_size = 64\n",
    "a path of fields": (
        "def put(m, path, value):\n    *above, last = path.split('.')\n    for name in above:\n"
        "        m = getattr(m, name)\n"
        f"    setattr(m, last, value)\n{READ}put(pipeline, 'train_config.batch_size', 64)\n"
    ),
    "two objects of a class": (
        "class Editor:\n    def __init__(self, n):\n        self.n = n\n    def edit(self, c):\n"
        f"        c.train_config.batch_size = self.n\n{READ}a = Editor(5)\nb = Editor(50)\na.edit(pipeline)\n"
    ),
    "two functions of a name": (
        "class A:\n    def edit(self, c):\n        c.train_config.batch_size = 5\nclass B:\n    def edit(self, c):\n"
        f"        c.train_config.batch_size = 50\n{READ}A().edit(pipeline)\n"
    ),
    "arguments that the script gives": (
        'parser.add_argument("--batch", default=3)\nargs = parser.parse_args(["--batch", "64"])\n'
        f"{READ}{BATCH} = args.batch\n"
    ),
    "a function of the script for one of Python's": (f"def max(a, b):\n    return a\n{READ}{BATCH} = max(2, 9)\n"),
    "a function that returns early, perhaps": (
        f"def edit(c):\n    if big():\n        return\n    c.train_config.batch_size = 4\n{READ}edit(pipeline)\n"
    ),
}


@pytest.mark.parametrize("way", DOUBTFUL)
def test_what_a_script_may_change_is_not_taken_for_known(way: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"give (--set batch_size=VALUE|the pipeline\.config itself)"):
        opened(tmp_path, DOUBTFUL[way])
