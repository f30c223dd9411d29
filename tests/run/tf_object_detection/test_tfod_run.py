"""`oomproof run pipeline.config` for real: SSD MobileNet on a small set of records, on this CPU.

They need the API, which `make tf-object-detection` installs; where it is not there they are skipped.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tfod_records import write_config, write_records
from tfod_training import ask, losses_in, needs_api, run, start, wait_for_line

pytestmark = [pytest.mark.slow, pytest.mark.thorough, needs_api]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    write_records(folder)
    return folder


def test_gradients_are_those_of_the_whole_batch(records: Path) -> None:
    found = ask("tfod_gradients.py", write_config(records, frozen="true", batch=8, dropout="false"))
    assert len(set(found["objects"])) > 1, "else a mean over micro-batches would do"
    assert found["mean of micro-batches"] > 0.01
    assert found["api"] < 1e-5
    assert found["in 4"]["gradients"] < 1e-4
    assert found["in 4"]["loss"] < 1e-6
    assert found["computed again"]["gradients"] < 1e-5
    assert found["float16"]["half"]
    assert not found["in 4"]["half"]
    assert found["float16"]["loss"] < 0.01


def test_killed_and_resumed_the_weights_are_those_of_an_undisturbed_run(records: Path, tmp_path: Path) -> None:
    """With augmentations, trained batch normalisation and micro-batches; once by kill -9, once by Ctrl-C. Then another
    training begins with its weights."""
    config = write_config(records, steps=6, batch=8)
    options = (config, "--accumulate", "2", "--save-every", "2")
    whole, _ = run(*options, "--model-dir", tmp_path / "whole")

    process = start(*options, "--model-dir", tmp_path / "cut")
    wait_for_line(process, "step 3/")
    # The process that trains, not the one that waits for it: nothing is saved, nothing is tidied up.
    for child in _children(process.pid):
        os.kill(child, signal.SIGKILL)
    process.communicate()
    assert process.returncode == 137

    process = start(*options, "--model-dir", tmp_path / "cut")
    seen = wait_for_line(process, "step 4/")
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate()
    assert process.returncode == 130, errors[-2000:]
    again = "".join(seen) + rest
    assert any(line.startswith("going on from") and line.rstrip().endswith("step 2") for line in seen)
    assert errors == "oomproof: interrupted\n"
    last = max(losses_in(again))
    assert f"at step {last}" in rest.splitlines()[-1], "the step that ran is finished and saved"

    assert last < 6, "else nothing was left to do"
    end, _ = run(*options, "--model-dir", tmp_path / "cut")
    losses = [losses_in(text) for text in (whole, again, end)]
    assert losses[1] | losses[2] == {step: losses[0][step] for step in range(3, 7)}
    found = ask("tfod_checkpoints.py", config, tmp_path / "whole", tmp_path / "cut", tmp_path / "exported")
    assert found["different"] == [], "of all variables of model and optimizer"
    assert found["compared"] > 300
    assert found["exported"], "by the API's own exporter"
    assert found["restored"] == 6, "by the API's own Checkpoint(step, model, optimizer)"

    more = f'fine_tune_checkpoint: "{tmp_path / "exported" / "checkpoint" / "ckpt-0"}"'
    more += ' fine_tune_checkpoint_type: "{}" fine_tune_checkpoint_version: V2'
    tuned = write_config(records, steps=1, batch=8, more=more.format("detection"))
    run(tuned, "--model-dir", tmp_path / "tuned", "--seed", "5")
    found = ask("tfod_begins_with.py", tmp_path / "exported" / "checkpoint", tmp_path / "tuned")
    assert found["steps"] == 0, "the checkpoint of a training that has just begun"
    assert found["same"] > 100, "weights of the feature extractor"
    assert all("FeatureExtractor" not in name and "_feature_extractor" not in name for name in found["different"])
    assert found["different"], "heads begin anew with type detection"

    wrong = write_config(records, steps=1, batch=8, more=more.format("classification"))
    _, errors = run(wrong, "--model-dir", tmp_path / "wrong", code=1)
    [line] = errors.strip().splitlines()
    assert "fine_tune_checkpoint" in line and "'classification'" in line


def _children(pid: int) -> list[int]:
    import psutil

    return [each.pid for each in psutil.Process(pid).children(recursive=True)]
