"""Host RAM and /dev/shm, once the device's side of a plan is settled: knobs of the data are turned, the least harmful
first, until the host's upper figure stays within what there is, and what waits in /dev/shm too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from oomproof.memory.forecast import Forecast
from oomproof.memory.host_memory import host_memory
from oomproof.memory.make_forecast import at_runtime
from oomproof.plan.plan import Change, Plan
from oomproof.plan.tracing import Tracing
from oomproof.plan.turned_knobs import Turned, describe_turned, promise_of, with_turned
from oomproof.sources.job import PROMISES, Knob, ReadsData, Settings

WORTH = 1 << 20
"""bytes that a change must save"""


@dataclass(frozen=True)
class Host:
    """The RAM that one training takes under other settings of its data, and how much there is."""

    needed: Callable[[Settings], int]
    """bytes at the upper figure"""
    ram: int | None
    """None: nobody said"""
    reads: bool = False
    """whether the job's data were read: notes then tell of them"""
    needed_of_shm: Callable[[Settings], int] = lambda settings: 0
    """bytes of /dev/shm, which are part of the RAM"""
    shm: int | None = None
    """what /dev/shm can hold; None: nobody said"""

    def enough(self, settings: Settings) -> bool:
        in_ram = self.ram is None or self.needed(settings) <= self.ram
        return in_ram and (self.shm is None or self.needed_of_shm(settings) <= self.shm)


def within(
    plan: Plan,
    ram: int | None,
    tracing: Tracing,
    knobs: Sequence[Knob],
    every: Sequence[Knob],
    *,
    shm: int | None = None,
) -> Plan:
    """The plan with what the host needs besides. ``knobs`` may be turned; ``every`` is what the user might allow."""
    before, after = (replace(each, ram=ram, shm_limit=shm) for each in (plan.before, plan.after))
    plan = replace(plan, before=before, after=after)
    enough = plan.after.host_outcome == plan.after.shm_outcome == "fits"
    if plan.interrupted or enough or plan.after.on_device_outcome != "fits":
        return plan
    host = _host(plan, ram, shm, tracing)
    turned = choose(host, plan.settings, knobs)
    settings = with_turned(plan.settings, turned)
    needs = () if host.enough(settings) else _needs(host, plan, every, knobs)
    if not turned:
        return replace(plan, needs=needs)
    found = sorted((*plan.changes, *_changes(host, plan, turned)), key=lambda each: PROMISES.index(each.promise))
    after = replace(_forecast(host, tracing, plan, settings), ram=ram, shm_limit=shm, epoch=plan.after.epoch)
    return replace(plan, settings=settings, changes=tuple(found), after=after, needs=needs)


def choose(host: Host, settings: Settings, knobs: Sequence[Knob]) -> list[Turned]:
    """What to turn: promise by promise the knob that saves most first, each no further than it has to be. All of it
    where nothing is enough."""
    chosen: list[Turned] = []
    now = settings
    for promise in PROMISES:
        saves = {
            knob.name: host.needed(now) - host.needed(now.with_values(knob.options[-1].settings))
            for knob in knobs
            if knob.promise == promise
        }
        for knob in sorted((each for each in knobs if each.name in saves), key=lambda each: -saves[each.name]):
            if host.enough(now):
                break
            if saves[knob.name] < WORTH:
                continue
            further = (option for option in knob.options[1:] if host.enough(now.with_values(option.settings)))
            option = next(further, knob.options[-1])
            chosen.append((knob, option))
            now = now.with_values(option.settings)
    return _relax(host, settings, _drop_needless(host, settings, chosen)) if host.enough(now) else chosen


def _relax(host: Host, settings: Settings, chosen: list[Turned]) -> list[Turned]:
    """Each turned back as far as the others allow, what harms most first."""
    for place, (knob, _) in reversed(list(enumerate(chosen))):
        others = [each for each in chosen if each[0] is not knob]
        start = with_turned(settings, others)
        mildest = next(option for option in knob.options[1:] if host.enough(start.with_values(option.settings)))
        chosen = [*chosen[:place], (knob, mildest), *chosen[place + 1 :]]
    return chosen


def _drop_needless(host: Host, settings: Settings, chosen: list[Turned]) -> list[Turned]:
    """Without those that a later, larger change has made needless."""
    for each in list(chosen):
        others = [one for one in chosen if one is not each]
        if host.enough(with_turned(settings, others)):
            chosen = others
    return chosen


def _host(plan: Plan, ram: int | None, shm: int | None, tracing: Tracing) -> Host:
    step, _ = tracing.trace(plan.settings, "looking at the host's RAM")
    job = tracing.job
    data = job.price_data(plan.settings) if isinstance(job, ReadsData) else lambda settings: {}
    kept: dict[str, tuple[int, int]] = {}

    def find(settings: Settings) -> tuple[int, int]:
        key = repr(settings)
        if key not in kept:
            known = replace(step, about=replace(step.about, **data(settings)))
            whole, waiting = host_memory(known, at_runtime(settings))
            kept[key] = whole.high, waiting
        return kept[key]

    reads = bool(data(plan.settings))
    return Host(lambda settings: find(settings)[0], ram, reads, lambda settings: find(settings)[1], shm)


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
    if host.enough(with_turned(plan.settings, turned)):
        names = {knob.name for knob in allowed}
        more = [(knob, option) for knob, option in turned if knob.name not in names]
        promised = "--keep equivalent" if any(promise_of(*each) == PROMISES[1] for each in more) else ""
        others = ",".join(knob.name for knob, option in more if promise_of(knob, option) == PROMISES[2])
        where = "/dev/shm" if host.ram is None else "the host's RAM"
        words = " ".join(filter(None, (promised, others and f"--allow {others}")))
        found.append(f"{words}: {describe_turned(turned)} would fit {where}")
    elif host.enough(without := _without_workers(plan.settings, every)):
        name, needs = plan.settings.name_of("workers"), host.needed(without) / 2**30
        found.append(
            f"--set {name}=0: the training process loads its data by itself, with {needs:.2f} GiB of RAM at worst and "
            "nothing in /dev/shm; steps wait for data"
        )
    if plan.settings.get("optimizer_state") == "host":
        found.append("--leave optimizer_state: its state would not wait in the host's RAM")
    return tuple(found) or (f"no knob of the data is enough: the host needs {least / 2**30:.2f} GiB of RAM at worst",)


def _without_workers(settings: Settings, every: Sequence[Knob]) -> Settings:
    """What no knob does, as every step then waits for its data. Left as it is where the user leaves workers alone."""
    name = settings.name_of("workers")
    names = [each for each in {name, "workers"} if each in settings]
    return settings.with_values(dict.fromkeys(names, 0)) if name in [knob.name for knob in every] else settings
