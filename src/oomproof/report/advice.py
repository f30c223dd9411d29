"""What to try next, in words: the hints of a forecast as options of ``oomproof check``, each with what it saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from oomproof.memory.forecast import Forecast, Hint
from oomproof.report.sizes import describe_setting, gib
from oomproof.report.verdict import describe_room
from oomproof.sources.job import Role, Setting

MOST_HINTS = 6
MOST_OPTIONS = 3
"""settings that one hint may name; where it is more, a plan is the better way to them"""


@dataclass(frozen=True)
class NextStep:
    """Add ``option`` to the command, for ``reason``."""

    option: str
    reason: str


KEPT_BY_WORKERS = 1 << 29
"""bytes of data workers from which on it is said how they become fewer"""


def next_steps(forecast: Forecast, settings: Sequence[Setting]) -> tuple[str, tuple[NextStep, ...]]:
    """A sentence, and the options that go with it (there may be none). ``settings`` are the ones the job has."""
    names = {setting.name for setting in settings}
    if forecast.outcome == "fits":
        return _room(forecast, names), ()
    if forecast.on_device_outcome == "fits":
        if forecast.validation_outcome != "fits":
            return _in_validation(forecast), ()
        if forecast.host_outcome == "fits":
            return _in_shm(forecast), ()
        return _on_the_host(forecast, settings)
    steps = [_next_step(hint, settings) for hint in forecast.hints[:MOST_HINTS]]
    missing = gib(forecast.excess) if forecast.excess > 0 else "a little"
    # A saved step can be replayed under other rules, but not made smaller.
    roles: tuple[Role, ...] = ("batch", "image size", "precision")
    whole = any(forecast.settings.name_of(role) in names for role in roles)
    inside = "" if whole else "make the job smaller (batch, fp16, image size)"
    if not steps:
        return f"save {missing} to be safe: {inside or 'a larger GPU is what is left'}", ()
    way = inside or "`oomproof fit` finds the best way"
    sure = any(hint.saves is not None for hint in forecast.hints)
    return f"save {missing} to be safe: {way}; these {'help, the surest first' if sure else 'may help'}:", tuple(steps)


def _next_step(hint: Hint, settings: Sequence[Setting]) -> NextStep:
    other = "; makes another training" if hint.promise == "different" else ""
    return NextStep(_option(hint, settings), f"{_saves(hint)}: {hint.why}{other}")


def _option(hint: Hint, settings: Sequence[Setting]) -> str:
    """As the command line takes it; `oomproof fit` where it is too much for a line."""
    known = {setting.name: setting for setting in settings}
    told = {name: value for name, value in hint.settings.items() if name in known}
    leading = {name: value for name, value in told.items() if known[name].follows is None}
    told = leading or told  # the others follow
    if not told or len(told) > MOST_OPTIONS or any(_is_nested(value) for value in told.values()):
        return f"oomproof fit{f' --allow {hint.knob}' if hint.promise == 'different' else ''}"
    return " ".join(known[name].as_option(_describe_argument(name, value)) for name, value in told.items())


def _describe_argument(name: str, value: Any) -> str:
    text = describe_setting(name, value)
    return f'"{text}"' if " " in text else text


def _is_nested(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(part, (list, tuple)) for part in value)


def _saves(hint: Hint) -> str:
    if hint.saves is None:
        return "a check with it shows what it saves"
    return f"saves {'up to' if hint.at_most else 'about'} {gib(hint.saves)}"


def _in_validation(forecast: Forecast) -> str:
    assert forecast.validation is not None
    short = gib(max(0, forecast.validation.excess))
    if forecast.validation.hints:
        return f"save {short} in evaluation to be safe: {'; '.join(hint.why for hint in forecast.validation.hints)}"
    return (
        f"save {short} in validation to be safe: torch.no_grad(), predictions moved to the host batch by batch, masks "
        "as run lengths, one image at a time, or validation in a process of its own"
    )


def _in_shm(forecast: Forecast) -> str:
    return (
        f"give /dev/shm {gib(forecast.shm)} or more (docker run --shm-size, or --ipc=host), or take fewer workers or a "
        "smaller prefetch_factor"
    )


def _on_the_host(forecast: Forecast, settings: Sequence[Setting]) -> tuple[str, tuple[NextStep, ...]]:
    short = gib(forecast.host.high - (forecast.ram or 0))
    sentence = f"save {short} of host RAM to be safe: `oomproof fit` with the same --ram finds out how"
    workers = forecast.host_parts.get("workers")
    if workers is not None and workers.expected > KEPT_BY_WORKERS and not forecast.settings.get("malloc_trim"):
        sentence += "; MALLOC_TRIM_THRESHOLD_=131072 in the environment lets data workers give back images they free"
    name, workers = forecast.settings.name_of("workers"), forecast.settings.of("workers")
    if not workers:
        return sentence, ()
    setting = next((each for each in settings if each.name == name), Setting(name, 0, ""))
    step = NextStep(
        setting.as_option("0"), f"{workers} data workers, each with memory of its own and batches that wait"
    )
    return f"{sentence}; this helps:", (step,)


def _room(forecast: Forecast, names: set[str]) -> str:
    room = describe_room(forecast)
    batch = forecast.settings.name_of("batch")
    if batch in names and forecast.settings.sharing == 1:
        images = forecast.settings[batch]
        sweep = f"{images}..{16 * images}" if isinstance(images, int) and images >= 16 else "1..16"
        return f"{room}; --sweep {batch}={sweep} finds the largest batch"
    return f"{room}; nothing to change"
