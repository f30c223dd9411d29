"""What can go wrong, as a user meets it.

OomproofError            any failure oomproof explains itself; the CLI prints it as one line and exits 1
├── InputError           what the user gave cannot be used: a name, a size, a setting, a file
│   ├── CannotDo         a job cannot be trained with a setting: a search passes it over, and says so in its log
│   └── DamagedFile      a timeline or snapshot file is truncated, foreign or hostile
└── JobError             the user's own code failed while its job was traced; carries their line
    └── Unanswerable     the job asks for a tensor's value that a forecast cannot know
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OomproofError(Exception):
    """Says what was expected, what came, and what to do next."""


class InputError(OomproofError):
    pass


class CannotDo(InputError):
    pass


class DamagedFile(InputError):
    pass


class JobError(OomproofError):
    pass


class Unanswerable(JobError):
    pass


def near(name: str, names: Iterable[str], alike: float = 0.5) -> list[str]:
    """Up to three of ``names`` that may have been meant."""
    return difflib.get_close_matches(name, list(names), 3, alike)


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "") -> str:
    """The middle of an error's line: «; did you mean batch or batches?», or ``otherwise`` where nothing is alike."""
    meant = near(name, names)
    return f"; did you mean {' or '.join(meant)}?" if meant else otherwise
