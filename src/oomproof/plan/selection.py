"""Which knobs a search may turn: those the user's promise covers, and those the user named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oomproof.errors import InputError, did_you_mean
from oomproof.plan.turned_knobs import promise_of
from oomproof.sources.job import PROMISES, Knob

KEEP = PROMISES[:2]


def check_words(keep: str, allow: Sequence[str], leave: Sequence[str] = ()) -> None:
    """What can be told before anything is traced."""
    both = [name for name in allow if name in leave]
    if both:
        raise InputError(f"{', '.join(both)} cannot be both allowed and left alone: leave one of them out")
    if keep not in KEEP:
        raise InputError(f"keep must be one of {', '.join(KEEP)}; got '{keep}'")
    if keep == PROMISES[0] and allow:
        raise InputError(
            f"keep identical and allow {', '.join(allow)} contradict each other: leave one of them out "
            "(keep equivalent, the default, lets allowed knobs be turned)"
        )


def refuse_unknown_knobs(job: str, knobs: Sequence[Knob], allow: Sequence[str]) -> None:
    """Every knob that was named is one of the job's."""
    names = [knob.name for knob in knobs]
    for name in allow:
        if name not in names:
            raise InputError(f"{job} has no knob '{name}'{did_you_mean(name, names, '.')} It has {', '.join(names)}")


def select_knobs(
    knobs: Sequence[Knob], keep: str, allow: Sequence[str] = (), leave: Sequence[str] = ()
) -> tuple[Knob, ...]:
    """The knobs that may be turned, each with the options that may be taken (the present one first)."""
    limit = PROMISES.index(keep)
    chosen = []
    for knob in (knob for knob in knobs if knob.name not in leave):
        options = tuple(
            option
            for place, option in enumerate(knob.options)
            if place == 0 or PROMISES.index(promise_of(knob, option)) <= limit or knob.name in allow
        )
        if len(options) > 1 or knob.name == "checkpoint" or knob.role == "batch":
            chosen.append(replace(knob, options=options))  # the search finds what to compute again, and scales batches
    return tuple(chosen)
