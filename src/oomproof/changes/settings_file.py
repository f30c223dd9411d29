"""Settings in a JSON file: what ``oomproof fit --write`` writes and a training reads.

    {"oomproof": 1, "job": "train_job.py:job", "device": "RTX 3060 12GB",
     "settings": {"batch": 4, "accumulate": 4, "checkpoint": "backbone:1"},
     "changes": ["batch 16 -> 4 x 4", "checkpoint none -> backbone:1"], "own": ["batch"]}

``own`` are the settings that are parameters of the job's own code; device and changes are for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oomproof.errors import DamagedFile, InputError
from oomproof.files.regular import read_regular
from oomproof.files.replacing import replace_file

FORMAT = 1
_MOST_BYTES = 4 << 20


def read_settings(path: str | Path) -> dict[str, Any]:
    """The settings in a file; lists are tuples again, as sizes are in settings."""
    return read_settings_and_own(path)[0]


def read_settings_and_own(path: str | Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The settings, and the names of those that are parameters of the job's own code."""
    try:
        text = read_regular(path, _MOST_BYTES).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the settings file {path} cannot be read: {_reason(error)}") from error
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise DamagedFile(f"{path} should be a settings file in JSON; line {error.lineno}: {error.msg}") from error
    except RecursionError:
        raise DamagedFile(f"{path} should be a settings file in JSON; it is nested too deeply to be one") from None
    except ValueError as error:  # a whole number of more digits than Python reads
        raise DamagedFile(
            f"{path} should be a settings file in JSON; it holds a number of thousands of digits"
        ) from error
    if not isinstance(content, dict) or "oomproof" not in content:
        raise DamagedFile(
            f'{path} should be a settings file, {{"oomproof": {FORMAT}, "settings": {{...}}}}; it has no "oomproof". '
            "Make one with: oomproof fit JOB --write"
        )
    if content["oomproof"] != FORMAT:
        raise InputError(
            f"{path} is of format {content['oomproof']!r}, and this oomproof reads format {FORMAT}: write the file "
            "anew with this version"
        )
    settings = content.get("settings")
    if not isinstance(settings, dict):
        raise DamagedFile(f'{path} should hold "settings", an object; it holds {_kind(settings)}')
    own = content.get("own", [])
    if not isinstance(own, list) or not all(isinstance(name, str) for name in own):
        raise DamagedFile(f'{path} should hold "own", a list of names; it holds {_kind(own)}')
    return {name: _make_tuples(value) for name, value in settings.items()}, tuple(own)


def write_settings(
    path: str | Path,
    job: str,
    device: str,
    settings: Mapping[str, Any],
    changes: Sequence[Any] = (),
    *,
    own: Iterable[str] = (),
) -> Path:
    """Writes the file as a whole or not at all. What the user had there is kept beside it, as ``.orig``."""
    target = Path(path)
    content = {
        "oomproof": FORMAT,
        "job": job,
        "device": device,
        "settings": dict(settings),
        "changes": list(changes),
        "own": sorted(own),
    }
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"settings must be numbers, texts, lists or true and false to be written: {error}") from error
    try:
        replace_file(target, text.encode())
    except OSError as error:
        raise InputError(f"the settings file {target} cannot be written: {_reason(error)}") from error
    return target


def _make_tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_make_tuples(part) for part in value)
    return {key: _make_tuples(part) for key, part in value.items()} if isinstance(value, dict) else value


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not a text in UTF-8"


def _kind(value: Any) -> str:
    return "none" if value is None else f"a {type(value).__name__}"
