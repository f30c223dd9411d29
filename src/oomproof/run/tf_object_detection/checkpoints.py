"""Checkpoints as the API writes them, with what an exact resumption needs beside.

The API's own are ``Checkpoint(step, model, optimizer)`` under a CheckpointManager in the model's folder; its exporter
and evaluator read these here as well. One more entry, which they pass over, has the seed, the number of records that
were used, and the loss scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomproof.changes.tf_object_detection.model import Built
from oomproof.errors import InputError
from oomproof.run.tf_object_detection.folder import failing_in_a_line

FIRST_SCALE = 2.0**15
_OURS = "oomproof/{}/.ATTRIBUTES/VARIABLE_VALUE"


@dataclass(frozen=True)
class State:
    """What oomproof adds to a checkpoint."""

    seed: Any
    records: Any
    scale: Any
    good: Any
    """updates since the loss scale last changed"""


@dataclass(frozen=True)
class Checkpoints:
    tf: Any
    manager: Any
    state: State
    resumed: str
    """the checkpoint that the training goes on from; empty: it begins"""

    def save(self) -> str:
        last = self.manager.latest_checkpoint
        then = f"the last one is {last}: make room, then start the same command again" if last else "make room first"
        with failing_in_a_line(self.tf, f"a checkpoint in {self.manager.directory}", then):
            path: str = self.manager.save()
        return path


def seed_in(tf: Any, model_dir: Path) -> int | None:
    """That of the training whose checkpoints are there."""
    latest = tf.train.latest_checkpoint(str(model_dir))
    if latest is None:
        return None
    try:
        reader = tf.train.load_checkpoint(latest)
        name = _OURS.format("seed")
        return int(reader.get_tensor(name)) if reader.has_tensor(name) else None
    except (tf.errors.OpError, ValueError) as error:
        raise InputError(f"{latest} cannot be read as a checkpoint: {_first_line(error)}") from None


def open_checkpoints(tf: Any, model_dir: Path, built: Built, *, images: int, seed: int, keep: int) -> Checkpoints:
    """Restores the latest, where there is one. ``images``: of an update."""
    state = State(
        *(tf.Variable(value, trainable=False, dtype=dtype) for value, dtype in (
            (seed, tf.int64), (-1, tf.int64), (FIRST_SCALE, tf.float32), (0, tf.int64),
        ))
    )  # fmt: skip
    ours = tf.train.Checkpoint(seed=state.seed, records=state.records, scale=state.scale, good=state.good)
    checkpoint = tf.train.Checkpoint(
        step=built.counter, model=built.model, optimizer=built.optimizer, oomproof=ours
    )  # fmt: skip
    manager = tf.train.CheckpointManager(checkpoint, str(model_dir), max_to_keep=keep)
    latest = manager.latest_checkpoint
    if latest:
        _restore(tf, checkpoint, latest, built)
    if int(state.records.numpy()) < 0:  # of the API's own training, or none
        state.records.assign(int(built.counter.numpy()) * images)
    built.step.begun.assign(built.counter)
    return Checkpoints(tf, manager, state, latest or "")


def _restore(tf: Any, checkpoint: Any, latest: str, built: Built) -> None:
    try:
        if not any(name.startswith("model/") for name, _ in tf.train.list_variables(latest)):
            raise ValueError("it holds no model")
        model = tf.train.Checkpoint(model=built.model)
        model.restore(latest).expect_partial().assert_existing_objects_matched()
        checkpoint.restore(latest).expect_partial()
    except (AssertionError, ValueError, tf.errors.OpError) as error:
        raise InputError(
            f"{latest} is not a checkpoint of this model ({_first_line(error)}): give another --model-dir, or the "
            "config that it was trained with"
        ) from None


def load_fine_tune(tf: Any, built: Built, training: Any, lib: Any, config_util: Any) -> None:
    """What train_config.fine_tune_checkpoint names, by the API's own code."""
    path = training.fine_tune_checkpoint
    config_util.update_fine_tune_checkpoint_type(training)
    try:
        lib.load_fine_tune_checkpoint(
            built.model, path, training.fine_tune_checkpoint_type, training.fine_tune_checkpoint_version, False, None,
            training.unpad_groundtruth_tensors,
        )  # fmt: skip
    except (AssertionError, ValueError, OSError, TypeError, tf.errors.OpError) as error:
        raise InputError(
            f"train_config.fine_tune_checkpoint {path} cannot be loaded as fine_tune_checkpoint_type "
            f"{training.fine_tune_checkpoint_type or 'classification'!r}: {_first_line(error)}"
        ) from None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]
