"""Two ways on that may both be taken: what is the same after both is known, and what differs is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oomproof.sources.detectron2.config.config import Config
from oomproof.sources.detectron2.script.choosing import one_of
from oomproof.sources.detectron2.script.contents import (
    DECLARED,
    Content,
    Items,
    Made,
    Parts,
    Run,
    Unknown,
)

_MISSING = object()


def join_values(one: Any, other: Any, why: str) -> Any:
    """The value where both ways give the same; else unknown, because of ``why``."""
    if type(one) is type(other) and one == other:
        return one
    why = next((each.why for each in (one, other) if isinstance(each, Unknown)), why)
    return one_of(why, (one, other))


def join_memories(one: dict[int, Content], other: dict[int, Content], why: str) -> dict[int, Content]:
    joined = {**other, **one}
    for number in one.keys() & other.keys():
        if one[number] is not other[number]:
            joined[number] = _join_contents(one[number], other[number], why)
    return joined


def _join_contents(one: Content, other: Content, why: str) -> Content:
    match one, other:
        case Parts(), Parts():
            return replace(one, parts=_join_parts(one.parts, other.parts, why))
        case Items(), Items() if len(one.items) == len(other.items):
            return Items(tuple(join_values(*pair, why) for pair in zip(one.items, other.items, strict=True)))
        case Made(), Made():
            config = join_configs(one.config, other.config, why)
            own = _join_parts(one.own, other.own, why)
            has_file = one.has_given_file or other.has_given_file
            new_keys = one.takes_new_keys or other.takes_new_keys
            return Made(config, max(one.touched, other.touched), own, has_file, new_keys)
        case Run(), Run():
            return join_runs(one, other, why)
    return one if one == other else Unknown(why)


def join_runs(one: Run, other: Run, why: str) -> Run:
    return replace(
        one,
        config=join_configs(one.config, other.config, why),
        training=_join_parts(one.training, other.training, why),
        begun=one.begun and other.begun,
    )


def join_configs(one: Config, other: Config, why: str) -> Config:
    """Keys that differ become unknown."""
    if one is other:
        return one
    unknown = {**other.unknown, **one.unknown}
    for key, value in one.values.items():
        if key not in unknown and value != other.values[key]:
            where = one.origins.get(key) or other.origins.get(key)
            unknown[key] = f"{where}: {key} depends on {why}, which is not known before the script runs"
    return replace(
        one,
        unknown=unknown,
        lost=one.lost or other.lost,
        origins={**other.origins, **one.origins},
        notes=tuple(dict.fromkeys((*one.notes, *other.notes))),
        guesses=tuple(dict.fromkeys((*one.guesses, *other.guesses))),
    )


def _join_parts(one: Mapping[Any, Any], other: Mapping[Any, Any], why: str) -> dict[Any, Any]:
    names = dict.fromkeys((*one, *other))
    joined = {name: join_values(one.get(name, _MISSING), other.get(name, _MISSING), why) for name in names}
    for how in DECLARED:  # ``global cfg`` counts for a whole function, on whichever way it stands
        if how in joined:
            joined[how] = tuple(dict.fromkeys((*one.get(how, ()), *other.get(how, ()))))
    return joined
