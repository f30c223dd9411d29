"""Why a command ended: done, out of memory, killed by somebody, or another error."""

from __future__ import annotations

import io
from dataclasses import dataclass

from oomproof.diagnosis.diagnose import diagnose
from oomproof.diagnosis.diagnosis import Diagnosis
from oomproof.diagnosis.gather import gather
from oomproof.diagnosis.reading import read
from oomproof.run.supervisor.child import FinishedRun

KILLED = (-9, 137)
NEARLY = 0.9
"""of the machine's memory: a process that was killed with so much is taken to have run out"""


@dataclass(frozen=True)
class Ending:
    kind: str
    """done, memory, killed (with signal 9, and nothing speaks of memory), stopped (by a signal to us), other"""
    where: str
    """device or host, of memory"""
    diagnosis: Diagnosis


def judge_ending(run: FinishedRun, ram: int) -> Ending:
    lines = list(run.tail)
    if run.code in KILLED:
        lines.append(b"Killed")
    found = diagnose(gather(read(io.BytesIO(b"\n".join(lines)))))
    where = str(found.facts.get("where") or "host")
    if run.code == 0:
        return Ending("done", "", found)
    if run.stopped:
        return Ending("stopped", "", found)
    if run.code in KILLED and found.facts.get("family") in (None, "exit"):
        memory = run.oom_kills > 0 or run.host_peak > NEARLY * ram
        return Ending("memory" if memory else "killed", "host", found)
    return Ending("memory" if found.is_memory else "other", where, found)
