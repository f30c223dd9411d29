"""``python tfod_api_training.py PIPELINE.CONFIG STEPS``: a training by the API alone, as model_main_tf2.py does it: its
model, input, optimizer and ``eager_train_step``. Prints a line a step. A process of its own: the API needs Keras 2.

Not its ``train_loop`` itself: that writes summaries, which wants TensorBoard to be installed.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

from oomproof.frameworks.object_detection import import_api, parse_config, part


def main(config_file: Path, steps: int) -> None:
    tf = import_api(tensorflow_1=False)
    config = parse_config(config_file.read_text())
    training = config.train_config
    model = part("builders.model_builder").build(config.model, is_training=True, add_summaries=False)
    data = part("inputs").train_input(training, config.train_input_reader, config.model, model=model)
    counter = tf.Variable(0, trainable=False, dtype=tf.int64)
    optimizer, _ = part("builders.optimizer_builder").build(training.optimizer, global_step=counter)

    def step(features: Any, labels: Any) -> Any:
        losses = part("model_lib_v2").eager_train_step(
            model, features, labels, training.unpad_groundtruth_tensors, optimizer, training_step=counter
        )
        counter.assign_add(1)
        return losses

    run = tf.function(step, autograph=False)
    for number, batch in enumerate(data.repeat().take(steps), 1):
        print(f"step {number}/{steps}  loss {float(run(*batch)['Loss/total_loss']):.4f}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    try:
        main(Path(sys.argv[1]), int(sys.argv[2]))
    except Exception as error:
        behind: BaseException | None = error
        while behind is not None:  # where memory is full, putting the message together fails as well
            print(f"died of {type(behind).__name__}: {str(behind)[:300]}", file=sys.stderr)
            behind = behind.__context__
        raise
    sys.stdout.flush()
    os._exit(0)
