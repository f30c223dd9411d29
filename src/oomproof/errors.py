"""What can go wrong, as a user meets it.

OomproofError              any failure that oomproof explains itself; the CLI prints it and exits 1
├── the user's
│   ├── InputError         what the user gave cannot be used: a name, a size, a setting, a file
│   │   ├── CannotDo       a job cannot be trained with a setting: a search passes it over, and says so in its log
│   │   ├── DamagedFile    a timeline or snapshot file is truncated, foreign or hostile
│   │   └── TooSmall       no setting can make the job fit this device; the CLI exits 2, as where nothing fits
│   ├── OutOfMemory        a guarded training ran out of memory, and there is nothing left to try; its state is intact
│   └── JobError           the user's own code failed while its job was traced; carries their line
│       └── Unanswerable   the job asks for a tensor's value that a forecast cannot know
├── UnsupportedVersion     an installed framework lacks what oomproof needs of it: says which versions have it
└── InternalError          a fault of oomproof: a report to copy. Nothing may swallow it and go on
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from pathlib import Path


class OomproofError(Exception):
    """Says what was expected, what came, and what to do next."""


class InputError(OomproofError):
    pass


class CannotDo(InputError):
    pass


class DamagedFile(InputError):
    pass


class TooSmall(InputError):
    pass


class OutOfMemory(OomproofError):
    pass


class JobError(OomproofError):
    pass


class Unanswerable(JobError):
    pass


class UnsupportedVersion(OomproofError):
    pass


class InternalError(OomproofError):
    """Several lines: what happened, then the report."""


_PACKAGE = Path(__file__).resolve().parent
_TOLD = ("torch", "torchvision", "tensorflow", "keras", "jax", "detectron2")


def internal_error(error: BaseException) -> InternalError:
    """A fault of oomproof as a report that a user can copy: what was raised, by which lines, with which versions."""
    import platform
    import traceback
    from importlib import metadata

    def version(package: str) -> str:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            return "of no known version"

    what = " ".join(f"{type(error).__name__}: {error}".split()) if str(error).strip() else type(error).__name__
    frames = [(Path(each.filename), each) for each in traceback.extract_tb(error.__traceback__)]
    own = [(path.relative_to(_PACKAGE), each) for path, each in frames if path.is_relative_to(_PACKAGE)]
    loaded = [f"{name} {version(name)}" for name in _TOLD if name in sys.modules]
    lines = [
        f"internal error: {what}; this is a fault of oomproof, not of your job: please report it with these lines",
        *(f"at oomproof/{path.as_posix()}:{each.lineno} in {each.name}" for path, each in own[-3:]),
        ", ".join([f"oomproof {version('oomproof')}", f"Python {platform.python_version()}", *loaded]),
    ]
    return InternalError("\n  ".join(lines))


def near(name: str, names: Iterable[str], alike: float = 0.5) -> list[str]:
    """Up to three of ``names`` that may have been meant, large letters or small.

    >>> near("batch_size", ["BATCH_SIZE", "workers"])
    ['BATCH_SIZE']
    """
    by_letters = {each.lower(): each for each in names}
    return [by_letters[each] for each in difflib.get_close_matches(name.lower(), list(by_letters), 3, alike)]


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """The middle of an error's line: «; did you mean batch or batches?», or ``otherwise`` where nothing is alike."""
    meant = near(name, names)
    return f"; did you mean {' or '.join(meant)}?" if meant else otherwise
