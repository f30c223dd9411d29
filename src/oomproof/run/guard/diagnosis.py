"""The last line of a training that cannot go on: where it failed, in what state it is, and what to do next."""

from __future__ import annotations

import io

from oomproof.diagnosis.diagnose import diagnose
from oomproof.diagnosis.gather import gather
from oomproof.diagnosis.reading import read
from oomproof.run.guard.failures import CaughtFailure


def describe_end(step: int, failure: CaughtFailure | None, state: str) -> str:
    if failure is None:
        return f"step {step}: another process ran out of memory and has nothing left to try; {state}"
    found = diagnose(gather(read(io.BytesIO(failure.text.encode("utf-8", "replace")))))
    error = " ".join(failure.text.split())[:300]
    because = failure.besides or (
        f"the batch stays whole: {failure.whole}" if failure.whole else "there is nothing left to try"
    )
    return (
        f"step {step}: out of memory in {failure.doing}, and {because}; {state}. It said: {error}. "
        f"Next: oomproof fit JOB, which plans for a budget ({found.verdict})"
    )


def describe_validation_end(failure: CaughtFailure, images: int) -> str:
    if failure.besides:
        return f"out of memory in {failure.doing}, and {failure.besides}; parameters and optimizer are as before"
    what = "one image" if images == 1 else f"{images} images" if images else "a batch that cannot be split"
    error = " ".join(failure.text.split())[:300]
    return (
        f"out of memory in {failure.doing} with {what}: there is nothing left to try; parameters and optimizer are as "
        f"before. It said: {error}. Next: smaller images, fewer detections, or results moved to the CPU as they come"
    )


def describe_lost_gather(failure: CaughtFailure) -> str:
    error = " ".join(failure.text.split())[:300]
    return (
        f"out of memory in {failure.doing}, although there was room for them a moment before: let this process end, so "
        "that the others do not wait for it until their time-out (no step can be done any more); parameters and "
        f"optimizer are as before this step. It said: {error}"
    )
