"""The training process: ``python -P -m oomproof.run.tf_object_detection.child FOLDER``, which holds ``request.json``.

Its own process, because the API needs Keras 2 under the name ``keras`` (frameworks/object_detection.py). Lines about
the training go to stdout, an error to stderr as one line. Exit code: 0 done, 130 stopped and saved, 1 failed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from oomproof.errors import InputError, JobError, OomproofError
from oomproof.files.replacing import replace_file
from oomproof.frameworks.object_detection import import_api, parse_config, part
from oomproof.run.tf_object_detection.request import REQUEST, TrainingRequest

DONE, FAILED, STOPPED = 0, 1, 130
_SEEDS = 2**31 - 2
_LAYER = "Exception encountered when calling layer"


def main(folder: Path) -> int:
    gc.set_threshold(100_000)  # a graph is a million objects that stay; looking through them again takes seconds
    warnings.simplefilter("ignore")  # of code from 2022, about which a user can do nothing here
    logging.disable(logging.WARNING)
    request = TrainingRequest(**json.loads((folder / REQUEST).read_text()))
    try:
        return DONE if run_training(request, _say) else STOPPED
    except OomproofError as error:
        print(" ".join(f"oomproof: {error}".split()), file=sys.stderr, flush=True)
        return FAILED


def run_training(request: TrainingRequest, say: Any) -> bool:
    """Whether it came to its end; False: it was asked to stop, and has saved."""
    from oomproof.changes.tf_object_detection.model import HALF, Extras, build_training
    from oomproof.run.tf_object_detection.checkpoints import load_fine_tune, open_checkpoints, seed_in
    from oomproof.run.tf_object_detection.folder import failing_in_a_line, make_folder
    from oomproof.run.tf_object_detection.loop import TrainingLoop, train
    from oomproof.run.tf_object_detection.records import open_batches

    tf = import_api(tensorflow_1=False)
    strategy = _choose_devices(tf, request, say)
    config = parse_config(request.text)
    training, model_dir = config.train_config, Path(request.model_dir)
    seed = _choose_seed(request, seed_in(tf, model_dir))
    # Weights, too, begin by the seed; not by 0, which tf.data cannot compare with the number of an epoch.
    tf.keras.utils.set_random_seed(1 + seed % _SEEDS)
    extras = Extras(request.accumulate, request.precision == HALF, request.recompute, seed, request.gpus)
    with strategy.scope(), _errors_in_a_line("the Object Detection API cannot build its model"):
        built = build_training(tf, config, (request.height, request.width), extras)
        if training.fine_tune_checkpoint and tf.train.latest_checkpoint(str(model_dir)) is None:
            load_fine_tune(tf, built, training, part("model_lib_v2"), part("utils.config_util"))
        checkpoints = open_checkpoints(tf, model_dir, built, images=training.batch_size, seed=seed, keep=request.keep)
    if checkpoints.resumed:
        say(f"going on from {checkpoints.resumed}, step {int(built.counter.numpy())}")
    if int(built.counter.numpy()) >= request.steps:
        say(f"nothing to do: step {int(built.counter.numpy())} of {request.steps} is saved; more steps: --steps N")
        return True
    make_folder(model_dir)
    with failing_in_a_line(tf, f"{model_dir}/pipeline.config", "make room, or give another --model-dir"):
        replace_file(model_dir / "pipeline.config", request.text.encode())
    _require_label_map(tf, config.train_input_reader.label_map_path)
    with tf.device("/CPU:0"), _errors_in_a_line("the Object Detection API cannot open train_input_reader"):
        first = int(checkpoints.state.records.numpy())
        images = training.batch_size // request.gpus
        data = _batches(open_batches(tf, config, built.model, images=images, seed=seed, first=first))
    with strategy.scope():
        loop = TrainingLoop(tf, strategy, built, request, checkpoints.state, say)
        return train(loop, data, checkpoints, model_dir)


def _require_label_map(tf: Any, path: str) -> None:
    """What the API says of a label map that is no protobuf text is "expected bytes, str found"."""
    if path:
        with _errors_in_a_line(f"the label map {path} cannot be read"):
            with tf.io.gfile.GFile(path) as file:
                text = file.read()
            message = part("protos.string_int_label_map_pb2").StringIntLabelMap()
            importlib.import_module("google.protobuf.text_format").Merge(text, message)


def _choose_devices(tf: Any, request: TrainingRequest, say: Any) -> Any:
    """Memory growth or a limit, and a strategy, before anything is on a device."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and len(gpus) < request.gpus:
        raise InputError(f"--gpus {request.gpus}: TensorFlow sees {len(gpus)} here")
    for gpu in gpus[: request.gpus]:
        if request.memory_limit_mb:
            limit = tf.config.LogicalDeviceConfiguration(memory_limit=request.memory_limit_mb)
            tf.config.set_logical_device_configuration(gpu, [limit])
        else:
            tf.config.experimental.set_memory_growth(gpu, True)
    if request.gpus == 1:
        return tf.distribute.get_strategy()
    if not gpus:
        say(f"no GPU here: {request.gpus} parts of the CPU stand for {request.gpus} GPUs")
        parts = [tf.config.LogicalDeviceConfiguration()] * request.gpus
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    kind = "GPU" if gpus else "CPU"
    return tf.distribute.MirroredStrategy([f"{kind}:{place}" for place in range(request.gpus)])


def _choose_seed(request: TrainingRequest, saved: int | None) -> int:
    if saved is not None and request.seed is not None and request.seed != saved:
        raise InputError(
            f"--seed {request.seed}: {request.model_dir} holds a training with seed {saved}, whose order of data would "
            "be lost; leave --seed out, or give another --model-dir"
        )
    return saved if saved is not None else request.seed or 0


def _batches(dataset: Any) -> Iterator[Any]:
    iterator = iter(dataset)
    while True:
        with _errors_in_a_line("the records of train_input_reader cannot be read on"):
            batch = next(iterator)
        yield batch


@contextlib.contextmanager
def _errors_in_a_line(what: str) -> Iterator[None]:
    """Whatever the API's own code raises here is about the config or the data."""
    try:
        yield
    except OomproofError:
        raise
    except Exception as error:
        raise JobError(f"{what}: {type(error).__name__}: {tell_reason(str(error))[:300]}") from error


def tell_reason(text: str) -> str:
    """The line of an error's text that says why: Keras 2 puts one before it that names the layer alone.

    >>> tell_reason("Exception encountered when calling layer 'D0'.\\n\\nimage size must be >= 129")
    'image size must be >= 129'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return lines[1] if lines[0].startswith(_LAYER) and len(lines) > 1 else lines[0]


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # TensorFlow takes seconds to tear down what nobody needs any more
