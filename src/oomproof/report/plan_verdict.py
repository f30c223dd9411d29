"""The first three lines of a plan: what becomes of the job on the device, why, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.memory.forecast import Forecast
from oomproof.plan.plan import Change, Plan
from oomproof.report import verdict as of_forecast
from oomproof.report.changes import brief, join_with_and
from oomproof.report.sizes import GIB, gib, number

NAMED = 3
"""changes that the second line names; the table has them all"""
WORTH_SAYING = GIB // 20


def verdict(plan: Plan) -> str:
    """One line that can stand alone, as in a log or a JSON field."""
    name = f"{plan.device.name}: "
    head, _, figures = of_forecast.verdict(plan.after).partition(name)
    line = f"{head}{plan.device.name}{_how(plan)}: {figures}{_price(plan)}"
    if _has_room_on_device(plan):
        line = _beside_the_device(plan)
    if not plan.interrupted:
        return line
    return f"stopped early; the {'best' if plan.fits else 'nearest'} so far {line}"


def why(plan: Plan) -> str:
    """What the job needs as it is, and which changes free the most; where it does not fit, what is still in the way."""
    if not plan.changes:
        return of_forecast.why(plan.after)
    sentences = [f"as it is it {_need(plan.before, plan.before_estimated)}", *_describe_freeing(plan)]
    if not plan.fits:
        sentences.append(f"even so {of_forecast.why(plan.after).partition('; ')[0]}")
    return "; ".join(sentences)


def next_step(plan: Plan, writing: bool) -> tuple[str, tuple[str, ...]]:
    """A sentence, and for a job that does not fit what would have to be allowed, a line each."""
    if plan.interrupted:
        found = "this fits and can be used" if plan.fits else "nothing fits yet"
        return f"{found}; a search that is not stopped may find something better", ()
    if not plan.fits:
        return _what_it_would_take(plan)
    room = of_forecast.describe_room(plan.after)
    if not plan.changes:
        return f"train it as it is; {room}", ()
    use = "use what was written: the end of this report says how"
    return f"{room}; {use if writing else 'add --write to keep these settings in a file and see how to use it'}", ()


def _what_it_would_take(plan: Plan) -> tuple[str, tuple[str, ...]]:
    if plan.needs and any(need.startswith("--") for need in plan.needs):
        return "nothing that is allowed fits; it would take one of these:", plan.needs
    if plan.needs:
        return f"nothing fits, whatever is allowed; {'; '.join(plan.needs)}", ()
    if _has_room_on_device(plan):
        return _what_the_rest_would_take(plan.after), ()
    return "nothing that is allowed fits, and no knob is left: a larger GPU or a smaller model", ()


def _what_the_rest_would_take(after: Forecast) -> str:
    if after.host_outcome != "fits":
        return "nothing that is allowed saves enough host RAM: more RAM, or fewer and smaller buffers of the data"
    if after.shm_outcome != "fits":
        wanted = f"give it {gib(after.shm)} or more (docker run --shm-size, or --ipc=host)"
        return f"nothing that is allowed leaves few enough batches in /dev/shm: {wanted}"
    return "nothing that is allowed makes validation fit: a smaller --validation-batch, or a larger GPU"


def _has_room_on_device(plan: Plan) -> bool:
    """Whether it is host RAM, /dev/shm or validation alone that is in the way."""
    return not plan.fits and plan.after.on_device_outcome == "fits"


def _beside_the_device(plan: Plan) -> str:
    """What is in the way comes first: a line that begins with "fits" is read no further."""
    after = plan.after
    parts = (
        (after.host_outcome, of_forecast.describe_host),
        (after.shm_outcome, of_forecast.in_shm),
        (after.validation_outcome, of_forecast.in_validation),
    )
    described = next(describe(after) for outcome, describe in parts if outcome != "fits")
    head, _, figures = described.removeprefix("; ").partition(": ")
    used = plan.after.on_device
    device = f"{plan.device.name} itself has room: {number(used.expected)} of {gib(plan.after.budget)}"
    return f"{head}{_count(plan)}: {figures}; {device} (at worst {number(used.high)})"


def _count(plan: Plan) -> str:
    many = "s" if len(plan.changes) > 1 else ""
    return f" even with {len(plan.changes)} change{many}" if plan.changes else ""


def _how(plan: Plan) -> str:
    count = f"{len(plan.changes)} change{'s' if len(plan.changes) > 1 else ''}"
    if plan.after.on_device_outcome == "fits":
        return f" with {count}" if plan.changes else " as it is"
    return f" even with {count}" if plan.changes else ", and nothing that may change helps"


def _price(plan: Plan) -> str:
    if not plan.fits:
        return ""
    if not plan.changes:
        return "; no change is needed"
    if abs(plan.time - 1) < 0.005:
        return "; the same time per image"
    return f"; takes {abs(plan.time - 1):.0%} {'more' if plan.time > 1 else 'less'} time per image".replace("%", " %")


def _need(before: Forecast, estimated: bool) -> str:
    if before.fits:
        return f"fits already, with {gib(before.on_device.expected)} (at worst {number(before.on_device.high)})"
    about = "about " if estimated else ""
    needs = []
    if before.on_device_outcome != "fits":
        needs.append(f"{about}{gib(before.on_device.expected)} (at worst {number(before.on_device.high)})")
    if before.host_outcome != "fits":
        needs.append(f"{gib(before.host.expected)} of host RAM (at worst {number(before.host.high)})")
    if before.shm_outcome != "fits":
        needs.append(f"{gib(before.shm)} of /dev/shm")
    if before.validation is not None and before.validation_outcome != "fits":
        wants = before.validation.on_device
        needs.append(f"{gib(wants.expected)} for validation (at worst {number(wants.high)})")
    return f"needs {' and '.join(needs)}"


def _describe_freeing(plan: Plan) -> Iterator[str]:
    most = sorted(plan.changes, key=_count_freed, reverse=True)[:NAMED]
    telling = [change for change in most if _count_freed(change) >= WORTH_SAYING]
    if telling:
        yield join_with_and(
            f"{change.knob} {brief(change.after)} frees "
            f"{gib(_count_freed(change))}{' of RAM' * bool(change.frees_host)}"
            for change in telling
        )


def _count_freed(change: Change) -> int:
    return change.frees_host or change.frees
