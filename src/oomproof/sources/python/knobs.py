"""Knobs of a user's own job, told by the names and annotations of its function's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.sources.image_sizes import harm_of_size, likely_divisor, smaller_sizes
from oomproof.sources.job import Knob, Option, Role, Setting, Settings
from oomproof.sources.python.words import SIZES

QUERIES = ("num_queries", "queries")
WIDTHS = ("width", "width_mult")
_OBJECTS = ("boxes", "objects")
_SHARES = ((0.75, 0.02), (0.5, 0.06), (0.25, 0.15))
_NEXT_CHOICE = 0.05
"""harm of each further value of a Literal: only the user knows, but they put the values in this order"""


def parameter_knobs(
    parameters: tuple[Setting, ...], literals: Mapping[str, tuple[Any, ...]], settings: Settings
) -> tuple[Knob, ...]:
    """What each parameter may become to save memory; parameters that say nothing of themselves are left alone."""
    names = {parameter.name for parameter in parameters}
    found = []
    for name in [parameter.name for parameter in parameters]:
        present = settings[name]
        if name in literals:
            knob = _choice(name, literals[name], present)
        elif name in SIZES:
            knob = _size(name, present, settings.get("anchor_scale") if "anchor_scale" in names else None)
        elif name in QUERIES:
            knob = _queries(name, present, settings)
        elif name in WIDTHS:
            knob = _width(name, present)
        else:
            knob = None
        found.append(knob)
    return tuple(knob for knob in found if knob is not None)


def _choice(name: str, values: tuple[Any, ...], present: Any) -> Knob | None:
    place = [str(value) for value in values].index(str(present))
    options = [Option(values[place], {name: values[place]})]
    for count, value in enumerate(values[place + 1 :], 1):
        options.append(Option(value, {name: value}, round(_NEXT_CHOICE * count, 3)))
    return _knob(name, options, "a further value of the parameter's Literal, in the order you gave")


def _size(name: str, present: Any, anchors: float | None) -> Knob | None:
    sides = present if isinstance(present, tuple) else (present,)
    if not sides or not all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in sides):
        return None
    also = {} if anchors is None else {"anchor_scale": anchors}
    options = [Option(present, {name: present, **also})]
    for size, factor in smaller_sizes(sides, likely_divisor(sides)):
        value = size if isinstance(present, tuple) else size[0]
        scaled = {} if anchors is None else {"anchor_scale": round(anchors * factor, 4)}
        note = "anchors become smaller by the same factor" if scaled else ""
        options.append(Option(value, {name: value, **scaled}, harm_of_size(factor), note))
    return _knob(name, options, "fine detail and small objects are lost first", "image size")


def _queries(name: str, present: Any, settings: Settings) -> Knob | None:
    if not isinstance(present, int) or isinstance(present, bool):
        return None
    objects = max([settings[each] for each in _OBJECTS if isinstance(settings.get(each), int)], default=1)
    options = [Option(present, {name: present})]
    for share, harm in _SHARES:
        if objects <= (count := round(present * share)) < options[-1].value:
            options.append(Option(count, {name: count}, harm, "no more objects than this are found in an image"))
    return _knob(name, options, "fewer objects can be found in an image")


def _width(name: str, present: Any) -> Knob | None:
    if not isinstance(present, float) or present <= 0:
        return None
    options = [Option(present, {name: present})]
    options += [Option(value := round(present * share, 4), {name: value}, harm) for share, harm in _SHARES]
    return _knob(name, options, "fewer channels in every layer")


def _knob(name: str, options: list[Option], why: str, role: Role | None = None) -> Knob | None:
    return Knob(name, tuple(options), "different", why, role=role) if len(options) > 1 else None
