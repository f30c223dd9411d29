"""``python tfod_checkpoints.py CONFIG ONE OTHER EXPORTED``: whether two folders hold equal checkpoints, and whether the
API's own code reads them. Prints one line of JSON. A process of its own, since the API needs Keras 2."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from oomproof.frameworks.object_detection import import_api, parse_config, part


def main(config_file: Path, one: Path, other: Path, exported: Path) -> dict[str, Any]:
    tf = import_api(tensorflow_1=False)
    readers = [tf.train.load_checkpoint(tf.train.latest_checkpoint(str(folder))) for folder in (one, other)]
    names = sorted(readers[0].get_variable_to_shape_map())
    assert names == sorted(readers[1].get_variable_to_shape_map())
    # How often each has saved is not the same, and the description of the objects is no weight.
    compared = [name for name in names if "save_counter" not in name and "OBJECT_GRAPH" not in name]
    different = [
        name for name in compared if not np.array_equal(*(reader.get_tensor(name) for reader in readers))
    ]  # fmt: skip
    config = parse_config(config_file.read_text())
    return {
        "compared": len(compared),
        "different": different,
        "restored": restore(tf, config, one),
        "exported": export(config, one, exported),
    }


def restore(tf: Any, config: Any, folder: Path) -> int:
    """As model_lib_v2 does it, in training and in evaluation."""
    step = tf.Variable(0, dtype=tf.int64)
    model = part("builders.model_builder").build(config.model, is_training=True)
    optimizer, _ = part("builders.optimizer_builder").build(config.train_config.optimizer, global_step=step)
    checkpoint = tf.train.Checkpoint(step=step, model=model, optimizer=optimizer)
    checkpoint.restore(tf.train.latest_checkpoint(str(folder))).expect_partial()
    return int(step)


def export(config: Any, folder: Path, target: Path) -> bool:
    """The exporter asserts that every weight of its model was in the checkpoint."""
    part("exporter_lib_v2").export_inference_graph("image_tensor", config, str(folder), str(target))
    return (target / "saved_model" / "saved_model.pb").is_file() and (target / "checkpoint" / "checkpoint").is_file()


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.simplefilter("ignore")
    print(json.dumps(main(*map(Path, sys.argv[1:]))))
    sys.stdout.flush()
    os._exit(0)
