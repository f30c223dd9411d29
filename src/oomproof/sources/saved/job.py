"""Steps from files: timelines saved by ``oomproof check --save``, and PyTorch memory snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oomproof.errors import InputError
from oomproof.files.looking import is_folder, is_there, say_why_no_file
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Job, Setting, Settings, TraceRequest
from oomproof.sources.settings import runtime_settings


@dataclass(frozen=True)
class SavedJob(Job):
    """A step that was traced or recorded before: only the run around it can still be set."""

    not_measured = "a saved step cannot be run"

    name: str
    timeline: Timeline

    @property
    def settings(self) -> tuple[Setting, ...]:
        about = self.timeline.about
        return runtime_settings(about.settings, of_tensorflow=about.allocator == "bfc")

    def trace(self, request: TraceRequest) -> Timeline:
        return self.timeline

    @property
    def place(self) -> Path:
        raise self._nowhere()

    def write(self, settings: Settings, target: Path | None, *, device: str = "", changes: Sequence[str] = ()) -> str:
        raise self._nowhere()

    def _nowhere(self) -> InputError:
        return InputError(
            f"{self.name} is a saved step, which has no source to write settings to; fit the job it was traced from"
        )


def open_saved(path: Path) -> SavedJob:
    if not is_there(path):
        raise InputError(f"{say_why_no_file(path)}: expected a timeline saved with --save, or a memory snapshot")
    if is_folder(path):
        raise InputError(f"{path} is a folder: expected a timeline saved with --save, or a memory snapshot")
    if path.suffix == ".timeline":
        from oomproof.memory.files.timeline_file import load_timeline as read
    else:
        from oomproof.memory.files.snapshot import load_snapshot as read
    timeline = read(path)
    return SavedJob(timeline.about.job or path.name, timeline)
