"""Training steps of the TensorFlow Object Detection API, foretold and for real.

They need the API, which `make tf-object-detection` installs and then runs these tests; where it is not there they are
skipped. Each step runs in a process of its own (tfod_real.py): the API needs Keras 2, and its models of
TensorFlow 1 another mode of TensorFlow.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tfod_models import BY_CHANCE, CONFIGS, SLIM_FPN

from oomproof.frameworks.object_detection import INSTALL, missing_packages
from oomproof.memory.cards.devices import find_device
from oomproof.memory.files.timeline_file import load_timeline
from oomproof.memory.timeline import Timeline
from oomproof.sources.settings import resolve
from oomproof.sources.tf_object_detection.config.config import config_of_text
from oomproof.sources.tf_object_detection.job import ObjectDetectionJob, open_config
from oomproof.sources.tf_object_detection.planned_values import find_planned_values
from oomproof.trace.request import TraceRequest
from oomproof.trace.tf_object_detection.process import ENVIRONMENT, trace_api_step
from oomproof.trace.tf_object_detection.request import ERROR, REQUEST, TIMELINE, StepRequest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.thorough,
    pytest.mark.skipif(
        bool(missing_packages()),
        reason=f"the Object Detection API is not installed (make tf-object-detection: {INSTALL})",
    ),
]
HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"


def job_of(name: str) -> ObjectDetectionJob:
    return open_config(config_of_text((CONFIGS | BY_CHANCE)[name], f"{name}.config"), f"{name}.config")


def for_real(name: str, folder: Path) -> dict[str, Any]:
    job = job_of(name)
    request = replace(job.step_request(resolve(job, {})), dialect="cpu")
    file = folder / "request.json"
    file.write_text(json.dumps(request.as_json()))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(HERE)])}
    command = [sys.executable, str(HERE / "tfod_real.py"), str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


READ_TWICE = """
from oomproof.frameworks.object_detection import import_api, parse_config
import_api(tensorflow_1=False)
config = parse_config("train_config { batch_size: 4 batch_size: 2 } train_config { num_steps: 3 }")
print(config.train_config.batch_size)
"""


def test_what_a_file_says_twice_is_read_as_by_the_apis_programs() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", READ_TWICE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split()[-1:] == ["2"], done.stderr[-2000:]


NASNET = """
from oomproof.frameworks.object_detection import import_api, part
import_api(tensorflow_1=True)
part("models.faster_rcnn_nas_feature_extractor").nasnet_large_arg_scope_for_detection()
from nets.nasnet import nasnet, pnasnet
config = nasnet.large_imagenet_config()
config.set_hparam("data_format", "NCHW")
print(config.data_format, config.num_cells, pnasnet.large_imagenet_config().num_cells)
"""


def test_nasnets_settings_are_those_of_contrib() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", NASNET], env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.stdout.split()[-3:] == ["NCHW", "18", "12"], done.stderr[-2000:]


ANCHORS = """
import math, sys
from oomproof.frameworks.object_detection import import_api, parse_config, part
import_api(tensorflow_1=False)
generator = parse_config(sys.argv[1]).model.ssd.anchor_generator
side = int(sys.argv[2])
grids = [(math.ceil(side / stride),) * 2 for stride in (16, 32, 64, 100, 150, 300)]
made = part("builders.anchor_generator_builder").build(generator).generate(grids, im_height=side, im_width=side)
sides = []
for boxes in made:
    for top, left, bottom, right in boxes.get().numpy():
        if top > 0 and left > 0 and bottom < 1 and right < 1:
            sides.append(side * math.sqrt((bottom - top) * (right - left)))
print(round(min(sides)), sum(boxes.num_boxes_static() for boxes in made))
"""


@pytest.mark.parametrize("reduced", ["true", "false"])
def test_the_apis_own_anchors_of_a_larger_input_keep_the_smallest_in_pixels(reduced: str) -> None:
    """In a reduced lowest layer, the smallest is none of the config's scales."""
    text = CONFIGS["ssd_inception_tf1"].replace("min_scale", f"reduce_boxes_in_lowest_layer: {reduced} min_scale")
    config = config_of_text(text, "ssd.config")
    job = open_config(config, "ssd.config")
    values = find_planned_values(config, resolve(job, {"image_size": "896x896"}))
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(SOURCE)}
    found = []
    for said, side in ((text, 224), (config.with_values(values).text, 896), (text, 896)):
        command = [sys.executable, "-c", ANCHORS, said, str(side)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        found.append([int(each) for each in done.stdout.split()[-2:]])
    smallest, rescaled, as_it_was = found
    assert smallest[0] == {"true": 22, "false": 45}[reduced], "0.1 and 0.2 of 224 pixels"
    assert rescaled == [smallest[0], as_it_was[1]], "in pixels, and no more of them"


def test_a_pyramid_of_tensorflow_1_is_built_too() -> None:
    """tf_slim looks for tensors where TensorFlow no longer has them; only some of its layers do."""
    job = open_config(config_of_text(SLIM_FPN, "slim.config"), "slim.config")
    same = job_of("ssd_resnet_fpn_tf2")
    slim, keras = (each.trace(TraceRequest(resolve(each, {"batch_size": 1}))).peak().bytes for each in (job, same))
    assert slim == pytest.approx(keras, rel=0.15)


CHILD = """
import sys
from pathlib import Path
from oomproof.trace.tf_object_detection import child, many_images
from oomproof.trace.tensorflow.graph.repeat import NotAlike

def refuse(*_):
    raise NotAlike

many_images.{name} = {value}
sys.exit(child.main(Path(sys.argv[1])))
"""


def trace_with(name: str, value: int | str, request: StepRequest, folder: Path) -> Timeline:
    """As the child traces it, with something else for a name of many_images.py."""
    (folder / REQUEST).write_text(json.dumps(request.as_json()))
    command = [sys.executable, "-P", "-c", CHILD.format(name=name, value=value), str(folder)]
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(SOURCE)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as child:
        assert child.wait() == 0, (folder / ERROR).read_text()
    return load_timeline(folder / TIMELINE)


@pytest.mark.parametrize(
    "name",
    [
        "ssd_mobilenet_tf2",
        "ssd_inception_tf1",
        "mask_rcnn_tf2",
        pytest.param("faster_rcnn_tf2", marks=pytest.mark.lengthy),
    ],
)
def test_many_images_follow_from_few(name: str, tmp_path: Path) -> None:
    """Held against the step that the API builds for all of them. Two-stage models go from image to image."""
    job = job_of(name)
    request = job.step_request(resolve(job, {"batch_size": 12}))
    followed = trace_api_step(request, name)
    assert "2 and with 4" in " ".join(followed.about.notes)
    whole = trace_with("MANY", 1000, request, tmp_path)
    assert not [note for note in whole.about.notes if "2 and with 4" in note]
    assert followed.peak().bytes == pytest.approx(whole.peak().bytes, rel=0.005)
    for bound in (min, max):
        peaks = [bound(each.about.orders.values()) for each in (followed, whole)]
        assert peaks[0] == pytest.approx(peaks[1], rel=0.05), "the order of a CPU is chance"


@pytest.mark.parametrize("reason", ["DEEPER", "EACH_ITS_OWN"])
def test_parts_of_a_step_that_goes_from_image_to_image_are_repeated(reason: str, tmp_path: Path) -> None:
    """What would be too deep, or too much of its own, to be extended."""
    job = job_of("ssd_mobilenet_tf2")
    request = replace(job.step_request(resolve(job, {"batch_size": 9})), height=96, width=96)
    folders = [tmp_path / name for name in ("made", "extended", "whole")]
    for folder in folders:
        folder.mkdir()
    made = trace_with(reason, -1, request, folders[0])
    extended = trace_with(reason, 1000, request, folders[1])
    whole = trace_with("MANY", 1000, request, folders[2])
    assert len(made) == len(whole) > len(extended), "a block for every image, not one that stands for several"
    assert made.peak().bytes == pytest.approx(whole.peak().bytes, rel=0.005)


def test_a_step_whose_parts_differ_is_built_with_all_images(tmp_path: Path) -> None:
    job = job_of("ssd_mobilenet_tf2")
    request = replace(job.step_request(resolve(job, {"batch_size": 9})), height=96, width=96, many_images="repeat")
    made = trace_with("repeat_parts", "refuse", request, tmp_path)
    assert not [note for note in made.about.notes if "2 and with 4" in note]
    assert (9, 96, 96, 3) in made.shapes


BUILD = """
import json, os, sys
from oomproof.trace.tf_object_detection import build
from oomproof.trace.tf_object_detection.request import StepRequest
if sys.argv[2] == "plainly":
    build.build_quickly = lambda: None
made = build.build_step(StepRequest(**json.loads(open(sys.argv[1]).read())))
whole = made.captured.definition
print(json.dumps([list(map(str, each)) for each in (whole.node, whole.library.function)]), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("name", ["mask_rcnn_tf2", "ssd_inception_tf1"])
def test_what_is_built_quickly_is_the_same(name: str, tmp_path: Path) -> None:
    """But for numbers that TensorFlow counts through a process, and functions, which it orders by their numbers."""
    job = job_of(name)
    file = tmp_path / REQUEST
    file.write_text(json.dumps(job.step_request(resolve(job, {})).as_json()))
    environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(SOURCE)}
    found = []
    for way in ("quickly", "plainly"):
        command = [sys.executable, "-P", "-c", BUILD, str(file), way]
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        parts = json.loads(said.splitlines()[-1])
        nodes, functions = ([re.sub(r"(?<=[-_/])\d{3,}\b", "N", each) for each in some] for some in parts)
        found.append((nodes, sorted(functions)))
    assert len(found[0][0]) > 1000
    assert found[0] == found[1]


@pytest.mark.parametrize("name", CONFIGS)
def test_steps_as_the_real_allocator_has_them(name: str, tmp_path: Path) -> None:
    found = for_real(name, tmp_path)
    assert found["replayed"] == pytest.approx(found["real"], rel=0.005), "lifetimes, in the order that was seen"
    assert found["expected"] == pytest.approx(found["real"], rel=0.03)
    assert found["low"] <= found["real"] <= found["high"]


@pytest.mark.parametrize("name", BY_CHANCE)
def test_what_differs_from_process_to_process_is_within_its_range(name: str, tmp_path: Path) -> None:
    found = for_real(name, tmp_path)
    assert found["replayed"] == pytest.approx(found["real"], rel=0.005), "lifetimes, in the order that was seen"
    assert found["low"] <= found["real"] <= found["high"]


def test_a_check_tells_the_stages_apart() -> None:
    said: list[str] = []
    job = job_of("mask_rcnn_tf2")
    timeline = job.trace(TraceRequest(resolve(job, {}), find_device("8GiB"), progress=said.append))
    assert "building the API's own model for TensorFlow 2, with 1 image" in said
    owners = {owner.split(".")[0] for owner in timeline.owners}
    assert {"feature extractor", "RPN", "box head", "mask head", "losses", "padded ground truth"} <= owners
    assert len(timeline.work) > 0, "plans and times need the work of operations"
    assert timeline.about.batchnorms >= 0
