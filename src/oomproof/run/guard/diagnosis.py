"""The last line of a training that cannot go on: where it failed, in what state it is, and what to do next."""

from __future__ import annotations

import io

from oomproof.diagnosis.diagnose import diagnose
from oomproof.diagnosis.gather import gather
from oomproof.diagnosis.reading import read
from oomproof.run.guard.failures import Failure


def describe_end(step: int, failure: Failure | None, state: str) -> str:
    if failure is None:
        return f"step {step}: another process ran out of memory and has nothing left to try; {state}"
    found = diagnose(gather(read(io.BytesIO(failure.text.encode("utf-8", "replace")))))
    error = " ".join(failure.text.split())[:300]
    return (
        f"step {step}: out of memory in {failure.doing}, and there is nothing left to try; {state}. It said: {error}. "
        f"Next: oomproof fit JOB, which plans for a budget ({found.verdict})"
    )
