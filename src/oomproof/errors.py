"""What can go wrong, as a user meets it.

OomproofError            any failure oomproof explains itself; the CLI prints it as one line and exits 1
├── InputError           what the user gave cannot be used: a name, a size, a setting, a file
│   └── DamagedFile      a timeline or snapshot file is truncated, foreign or hostile
└── JobError             the user's own code failed while its job was traced; carries their line
    └── Unanswerable     the job asks for a tensor's value that a forecast cannot know
"""

from __future__ import annotations


class OomproofError(Exception):
    """Says what was expected, what came, and what to do next."""


class InputError(OomproofError):
    pass


class DamagedFile(InputError):
    pass


class JobError(OomproofError):
    pass


class Unanswerable(JobError):
    pass
