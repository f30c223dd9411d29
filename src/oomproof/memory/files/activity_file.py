"""What a step does, from one process to another: the work and the module calls that a Timeline's file does not keep."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np

from oomproof.memory.activity import ModuleCall, Work
from oomproof.memory.timeline import Timeline

_COLUMNS = ("tick", "owner", "phase", "flops", "bytes", "form")


def save_activity(timeline: Timeline, file: Path) -> None:
    work = {name: getattr(timeline.work, name).tolist() for name in _COLUMNS}
    file.write_text(json.dumps({"work": work, "modules": [astuple(call) for call in timeline.modules]}))


def with_activity(timeline: Timeline, file: Path) -> Timeline:
    """The Timeline with what ``save_activity`` wrote of it; as it is where there is no such file."""
    if not file.is_file():
        return timeline
    content = json.loads(file.read_text())
    work = Work(**{name: np.array(content["work"][name], dtype=np.int64) for name in _COLUMNS})
    return replace(timeline, work=work, modules=tuple(_call(each) for each in content["modules"]))


def _call(values: list[Any]) -> ModuleCall:
    path, enter, leave, inputs, outputs, *rest = values
    return ModuleCall(path, enter, leave, tuple(inputs), tuple(outputs), *rest)
