"""Host RAM, once the device's side of a plan is settled: knobs of the data are turned, least harmful first, until the
host's upper figure stays within what there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from oomproof.memory.forecast import Forecast
from oomproof.memory.host_memory import host_memory
from oomproof.memory.make_forecast import at_runtime
from oomproof.plan.plan import Change, Plan
from oomproof.plan.tracing import Tracing
from oomproof.plan.turned import Turned, describe, promise_of, with_turned
from oomproof.sources.job import PROMISES, Knob, ReadsData, Settings

WORTH = 1 << 20
"""bytes that a change must save"""


@dataclass(frozen=True)
class Host:
    """The RAM that one training takes under other settings of its data, and how much there is."""

    needed: Callable[[Settings], int]
    """bytes at the upper figure"""
    ram: int
    reads: bool = False
    """whether the job's data were read: notes then tell of them"""

    def enough(self, settings: Settings) -> bool:
        return self.needed(settings) <= self.ram


def within(plan: Plan, ram: int, tracing: Tracing, knobs: Sequence[Knob], every: Sequence[Knob]) -> Plan:
    """The plan with what the host needs besides. ``knobs`` may be turned; ``every`` is what the user might allow."""
    plan = replace(plan, before=replace(plan.before, ram=ram), after=replace(plan.after, ram=ram))
    if plan.interrupted or plan.after.host_outcome == "fits" or plan.after.on_device_outcome != "fits":
        return plan
    host = _host(plan, ram, tracing)
    turned = choose(host, plan.settings, knobs)
    settings = with_turned(plan.settings, turned)
    needs = () if host.enough(settings) else _needs(host, plan, every, knobs)
    if not turned:
        return replace(plan, needs=needs)
    found = sorted((*plan.changes, *_changes(host, plan, turned)), key=lambda each: PROMISES.index(each.promise))
    after = replace(_forecast(host, tracing, plan, settings), ram=ram)
    return replace(plan, settings=settings, changes=tuple(found), after=after, needs=needs)


def choose(host: Host, settings: Settings, knobs: Sequence[Knob]) -> list[Turned]:
    """What to turn: promise by promise the knob that saves most first, each no further than it has to be. All of it
    where nothing is enough."""
    chosen: list[Turned] = []
    now = settings
    for promise in PROMISES:
        saves = {
            knob.name: host.needed(now) - host.needed(now.changed(knob.options[-1].settings))
            for knob in knobs
            if knob.promise == promise
        }
        for knob in sorted((each for each in knobs if each.name in saves), key=lambda each: -saves[each.name]):
            if host.enough(now):
                break
            if saves[knob.name] < WORTH:
                continue
            further = (option for option in knob.options[1:] if host.enough(now.changed(option.settings)))
            option = next(further, knob.options[-1])
            chosen.append((knob, option))
            now = now.changed(option.settings)
    return _relax(host, settings, _needed_ones(host, settings, chosen)) if host.enough(now) else chosen


def _relax(host: Host, settings: Settings, chosen: list[Turned]) -> list[Turned]:
    """Each turned back as far as the others allow, what harms most first."""
    for place, (knob, _) in reversed(list(enumerate(chosen))):
        others = [each for each in chosen if each[0] is not knob]
        start = with_turned(settings, others)
        mildest = next(option for option in knob.options[1:] if host.enough(start.changed(option.settings)))
        chosen = [*chosen[:place], (knob, mildest), *chosen[place + 1 :]]
    return chosen


def _needed_ones(host: Host, settings: Settings, chosen: list[Turned]) -> list[Turned]:
    """Without those that a later, larger change has made needless."""
    for each in list(chosen):
        others = [one for one in chosen if one is not each]
        if host.enough(with_turned(settings, others)):
            chosen = others
    return chosen


def _host(plan: Plan, ram: int, tracing: Tracing) -> Host:
    step, _ = tracing.trace(plan.settings, "looking at the host's RAM")
    job = tracing.job
    data = job.price_data(plan.settings) if isinstance(job, ReadsData) else lambda settings: {}
    kept: dict[str, int] = {}

    def needed(settings: Settings) -> int:
        key = repr(settings)
        if key not in kept:
            known = replace(step, about=replace(step.about, **data(settings)))
            kept[key] = host_memory(known, at_runtime(settings))[0].high
        return kept[key]

    return Host(needed, ram, bool(data(plan.settings)))


def _forecast(host: Host, tracing: Tracing, plan: Plan, settings: Settings) -> Forecast:
    """Data that were read are read anew, for what notes tell of them; else there is nothing new to trace."""
    traced = settings if host.reads else plan.settings
    step, _ = tracing.trace(traced, "confirming the host's RAM")
    return tracing.forecast(step, settings)


def _changes(host: Host, plan: Plan, turned: Sequence[Turned]) -> list[Change]:
    found = []
    for place, (knob, option) in enumerate(turned):
        before, after = (host.needed(with_turned(plan.settings, turned[:count])) for count in (place, place + 1))
        found.append(
            Change(
                knob.name,
                knob.options[0].value,
                option.value,
                promise_of(knob, option),
                knob.why,
                frees=0,
                time=1.0,
                settings=option.settings,
                frees_host=before - after,
            )
        )
    return found


def _needs(host: Host, plan: Plan, every: Sequence[Knob], allowed: Sequence[Knob]) -> tuple[str, ...]:
    """What would have to be allowed, in options of the command."""
    turned = choose(host, plan.settings, every)
    least = host.needed(with_turned(plan.settings, turned))
    found = []
    if least <= host.ram:
        names = {knob.name for knob in allowed}
        more = [(knob, option) for knob, option in turned if knob.name not in names]
        promised = "--keep equivalent" if any(promise_of(*each) == PROMISES[1] for each in more) else ""
        others = ",".join(knob.name for knob, option in more if promise_of(knob, option) == PROMISES[2])
        words = " ".join(filter(None, (promised, others and f"--allow {others}")))
        found.append(f"{words}: {describe(turned)} would fit the host's RAM")
    if plan.settings.get("optimizer_state") == "host":
        found.append("--leave optimizer_state: its state would not wait in the host's RAM")
    return tuple(found) or (f"no knob of the data is enough: the host needs {least / 2**30:.2f} GiB of RAM at worst",)
