"""``python tfod_begins_with.py CHECKPOINT_FOLDER MODEL_DIR``: which weights of a training's first checkpoint are those
of another checkpoint. Prints one line of JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf


def main(given: Path, model_dir: Path) -> dict[str, Any]:
    old = tf.train.load_checkpoint(tf.train.latest_checkpoint(str(given)))
    new = tf.train.load_checkpoint(str(model_dir / "ckpt-1"))
    names = [name for name in new.get_variable_to_shape_map() if name.startswith("model/") and old.has_tensor(name)]
    same = [name for name in names if np.array_equal(old.get_tensor(name), new.get_tensor(name))]
    return {
        "steps": int(new.get_tensor("step/.ATTRIBUTES/VARIABLE_VALUE")),
        "same": len(same),
        "different": sorted({*names} - {*same}),
    }


if __name__ == "__main__":
    print(json.dumps(main(*map(Path, sys.argv[1:]))))
