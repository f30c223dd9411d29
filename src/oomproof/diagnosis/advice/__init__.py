"""What to do next: for every cause a command, or a line of the user's own framework."""

from __future__ import annotations

from oomproof.diagnosis.advice import device, host
from oomproof.diagnosis.facts import Facts


def advise_next_step(cause: str, facts: Facts) -> str:
    return {**device.steps(facts), **host.steps(facts)}[cause]
