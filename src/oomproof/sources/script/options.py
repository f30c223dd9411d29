"""Options of a script that decide about memory: told by their names and values, set on its command line, or in the
files where their values are written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oomproof.sources.image_sizes import harm_of_size, likely_divisor, smaller_sizes
from oomproof.sources.job import Knob, Option, Setting, Settings
from oomproof.sources.script.places import Place, Written

Part = Literal["batch", "accumulation", "precision", "image size", "workers", "prefetch_factor"]
OF_LOADERS = ("workers", "prefetch_factor")
"""parts that are settings of every run, whatever the script calls them"""

_PARTS: tuple[tuple[Part, re.Pattern[str]], ...] = (
    ("accumulation", re.compile(r"(grad(ient)?_)?accum(ulat\w*)?(_\w+)?|update_freq")),
    ("precision", re.compile(r"(use_)?(amp|fp16|bf16|half|mixed_precision|autocast)")),
    ("image size", re.compile(r"(train_)?(image|img|input|crop)_?(size|sz)|resolution|size")),
    ("workers", re.compile(r"(num_|n_|data_|dataloader_|loader_)*workers(_per_gpu)?|nw")),
    ("prefetch_factor", re.compile(r"(dataloader_)?prefetch_factor")),
    ("batch", re.compile(r"(per_device_|per_gpu_)?(train_)?(batch(_?size)?|bs|b)(_per_gpu)?(_train)?")),
)
_HALVING = 0.05
"""harm of each halving of the batch, where nothing makes up for it: a guess"""


@dataclass(frozen=True)
class Found:
    """An option that the script's parser has, with the value of this run."""

    part: Part
    name: str
    option: str
    spelt: tuple[str, ...]
    value: Any
    switch: bool
    place: Place | None = None
    """in a file, where it is not an option of the command line"""

    def as_setting(self) -> Setting:
        usual = self._list_others() if self.place is None else ()  # no command says what stands in a file
        return Setting(self.name, self.value, f"the script's {self.option}", own=True, usual=usual)

    def _list_others(self) -> tuple[Any, ...]:
        """Values that people ask about.

        >>> Found("batch", "b", "-b", ("-b",), 24, False)._list_others()
        (12, 48)
        >>> Found("image size", "size", "--size", ("--size",), 224, False)._list_others()
        (160, 288)
        >>> Found("image size", "size", "--size", ("--size",), 64, False)._list_others()
        (32, 96)
        """
        if self.switch:
            return (not self.value,)
        if self.part == "batch":
            return tuple(each for each in (self.value // 2, self.value * 2) if each)
        if self.part == "image size":
            step = likely_divisor((self.value,))
            near = (min(round(0.75 * self.value / step), self.value // step - 1), round(1.25 * self.value / step))
            smaller, larger = (count * step for count in near)
            return tuple(each for each in (smaller, max(larger, self.value + step)) if each)
        return ()


def find_options(told: Iterable[Mapping[str, Any]]) -> tuple[Found, ...]:
    """Those of what a script told that are known by name; one of each part."""
    found: dict[Part, Found] = {}
    for each in told:
        part = part_of(each["name"])
        fits = each["switch"] if part == "precision" else type(each["value"]) is int and each["value"] > 0
        if part is not None and fits and part not in found:
            found[part] = Found(part, each["name"], each["option"], tuple(each["spelt"]), each["value"], each["switch"])
    return tuple(found.values())


def find_written(written: Iterable[Written], known: Iterable[Found]) -> tuple[Found, ...]:
    """Values in files that are known by name, where no option of the command line has the same part. Guesses."""
    taken, names = {each.part for each in known}, {each.name for each in known}
    found = []
    for each in written:
        part = part_of(each.name)
        switch = type(each.value) is bool
        fits = switch if part == "precision" else not switch and each.value > 0
        if part is not None and fits and part not in taken and each.name not in names:
            option = f"{each.name} at {each.place.said}"
            found.append(Found(part, each.name, option, (), each.value, switch, each.place))
    return tuple(found)


def split_off_loaders(found: Iterable[Found], runtime: Mapping[str, Any]) -> tuple[Found, ...]:
    """Of what was found, what says how many workers loaders have: those whose value they were seen to have. An option
    of the command line comes before values in files, of which all of that value count."""
    every = [each for each in found if each.part in OF_LOADERS and each.value == runtime.get(each.part)]
    options = {each.part for each in every if each.place is None}
    return tuple(each for each in every if each.place is None or each.part not in options)


def part_of(name: str) -> Part | None:
    return next((part for part, names in _PARTS if names.fullmatch(name.lower().replace("-", "_"))), None)


def try_value(found: Found) -> Any:
    """A thriftier value, to see whether it counts; None where there is none."""
    if found.part == "accumulation" or found.value is True:
        return None
    if found.part == "image size":
        sides = (found.value,)
        smaller = next(iter(smaller_sizes(sides, likely_divisor(sides))), None)
        return smaller[0][0] if smaller else None
    return True if found.switch else found.value // 2 or None


def set_options(arguments: Sequence[str], values: Mapping[Found, Any]) -> tuple[str, ...]:
    """The script's arguments with other values, each where it stood.

    >>> batch = Found("batch", "batch", "--batch", ("-b", "--batch"), 16, False)
    >>> set_options(["-b", "16", "--lr=1"], {batch: 4})
    ('-b', '4', '--lr=1')
    """
    words = list(arguments)
    for each, value in values.items():
        if each.switch:
            words = [*words, each.option] if value else [word for word in words if word not in each.spelt]
        else:
            words = _with_value(words, each, str(value))
    return tuple(words)


def _with_value(words: list[str], found: Found, value: str) -> list[str]:
    for place, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if name in found.spelt:
            return (
                [*words[:place], f"{name}={value}", *words[place + 1 :]]
                if equals
                else [*words[: place + 1], value, *words[place + 2 :]]
            )
    return [*words, found.option, value]


def option_knobs(found: Sequence[Found], settings: Settings) -> tuple[Knob, ...]:
    parts = {each.part: each for each in found}
    every = (
        _batch(parts.get("batch"), parts.get("accumulation"), settings),
        _precision(parts.get("precision"), settings),
        _size(parts.get("image size"), settings),
    )
    return tuple(knob for knob in every if knob is not None)


def _batch(batch: Found | None, accumulation: Found | None, settings: Settings) -> Knob | None:
    if batch is None:
        return None
    whole = settings[batch.name]
    sizes = [whole >> halvings for halvings in range(8) if whole % (1 << halvings) == 0]
    if len(sizes) < 2:
        return None
    if accumulation is None:
        options = [Option(size, {batch.name: size}, _HALVING * place) for place, size in enumerate(sizes)]
        return Knob(batch.name, tuple(options), "different", "fewer images in each step, and nothing makes up for it")
    times = settings[accumulation.name]
    options = [
        Option(f"{size} x {times * whole // size}", {batch.name: size, accumulation.name: times * whole // size})
        for size in sizes
    ]
    return Knob(batch.name, tuple(options), "equivalent", f"same effective batch by {accumulation.option}")


def _precision(switch: Found | None, settings: Settings) -> Knob | None:
    if switch is None or settings[switch.name]:
        return None
    options = (Option(False, {switch.name: False}), Option(True, {switch.name: True}))
    return Knob(switch.name, options, "equivalent", f"the script's own {switch.option}", role="precision")


def _size(size: Found | None, settings: Settings) -> Knob | None:
    if size is None:
        return None
    sides = (settings[size.name],)
    options = [Option(sides[0], {size.name: sides[0]})]
    for smaller, factor in smaller_sizes(sides, likely_divisor(sides)):
        options.append(Option(smaller[0], {size.name: smaller[0]}, harm_of_size(factor)))
    if len(options) < 2:
        return None
    return Knob(size.name, tuple(options), "different", "fine detail and small objects are lost first")
