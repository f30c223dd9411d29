"""Plans within a budget of host RAM: what is turned, how far, and what is told where it is not enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import oomproof
from oomproof.api.fit import fit, list_knobs
from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.host_memory import FORKED, TRAINER
from oomproof.memory.timeline import Builder
from oomproof.plan.host_ram import Host, choose
from oomproof.plan.plan import Plan
from oomproof.sources.job import Knob, Option, Settings
from oomproof.sources.saved.job import SavedJob

MIB = 1 << 20
BATCH = 100


def saved(**about: Any) -> SavedJob:
    step = Builder()
    step.allocate(BATCH * MIB, kind="input", owner="(step)", op="input")
    for _ in range(2):
        step.enter("forward")
        block = step.allocate(500 * MIB, kind="activation", owner="net", op="conv")
        step.enter("backward")
        step.free(block)
    return SavedJob("job", step.build(About(**about)))


def needed(workers: int, ready: int) -> int:
    """The host's upper figure."""
    batches = 2 * (workers * ready + 1) + 2 * workers + 1 if workers else 2  # those that wait, are made, are trained on
    return TRAINER.high + workers * FORKED.high + batches * BATCH * MIB


def planned(ram: int, **given: Any) -> Plan:
    plan = fit(saved(), "8GiB", ram=ram, **{"workers": 8, "prefetch_factor": 4, **given})
    assert plan.after.ram == plan.before.ram == ram
    again = oomproof.check(saved(), "8GiB", ram=ram, **plan.settings)
    assert (again.host, again.on_device, again.fits) == (plan.after.host, plan.after.on_device, plan.fits)
    assert sum(each.frees_host for each in plan.changes) == plan.before.host.high - plan.after.host.high
    assert all(each.frees == 0 and each.time == 1.0 for each in plan.changes)
    return plan


def turned(plan: Plan) -> list[tuple[str, Any, str]]:
    return [(each.knob, each.after, each.promise) for each in plan.changes]


def test_nothing_is_turned_where_there_is_enough() -> None:
    plan = planned(needed(8, 4))
    assert plan.fits and plan.changes == ()


def test_the_promise_that_keeps_most_comes_first_and_goes_no_further_than_it_must() -> None:
    plan = planned(needed(8, 2))
    assert plan.fits and turned(plan) == [("prefetch_factor", 2, "identical")]
    plan = planned(needed(8, 2) - 1)
    assert plan.fits and turned(plan) == [("prefetch_factor", 1, "identical")]


def test_no_more_workers_go_than_must() -> None:
    plan = planned(needed(7, 1))
    assert plan.fits and turned(plan) == [("prefetch_factor", 1, "identical"), ("workers", 7, "equivalent")]
    plan = planned(needed(7, 1), leave=["prefetch_factor"])
    assert plan.fits and needed(plan.settings["workers"] + 1, 4) > needed(7, 1) >= needed(plan.settings["workers"], 4)


def test_what_only_comes_close_is_added_to() -> None:
    plan = planned(needed(4, 1))
    assert plan.fits and turned(plan) == [("prefetch_factor", 1, "identical"), ("workers", 4, "equivalent")]


def test_what_a_larger_change_makes_needless_is_left_out() -> None:
    plan = planned(needed(1, 4))
    assert plan.fits and turned(plan) == [("workers", 1, "equivalent")]


def test_what_would_have_to_be_allowed_is_said() -> None:
    plan = planned(needed(4, 1), keep="identical")
    assert not plan.fits and turned(plan) == [("prefetch_factor", 1, "identical")]
    assert plan.needs == ("--keep equivalent: prefetch_factor 1, workers 4 would fit the host's RAM",)
    plan = planned(needed(4, 1), leave=["workers"])
    least = needed(8, 1) / 2**30
    assert plan.needs == (f"no knob of the data is enough: the host needs {least:.2f} GiB of RAM at worst",)


def test_loading_without_workers_is_offered_where_one_is_too_many() -> None:
    plan = planned(needed(1, 1) - 1)
    assert not plan.fits and turned(plan)[-1] == ("workers", 1, "equivalent")
    [need] = plan.needs
    assert need.startswith("--set workers=0: ") and f"with {needed(0, 1) / 2**30:.2f} GiB of RAM at worst" in need
    assert fit(saved(), "8GiB", ram=needed(1, 1) - 1, workers=0).fits
    assert "workers=0" not in planned(needed(1, 1) - 1, leave=["workers"]).needs[0]
    assert "workers=0" not in planned(needed(0, 1) - 1).needs[0]


def test_a_device_that_does_not_fit_comes_first() -> None:
    plan = fit(saved(), "800MiB", ram=needed(1, 1), workers=8)
    assert not plan.fits and plan.after.on_device_outcome != "fits"
    assert "workers" not in [each.knob for each in plan.changes]


def test_knobs_of_the_host_wait_for_a_budget() -> None:
    named = {knob.name: knob for knob in list_knobs(saved(), "8GiB", workers=8, prefetch_factor=3)}
    assert [option.value for option in named["workers"].options] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert [option.value for option in named["prefetch_factor"].options] == [3, 2, 1]
    assert named["workers"].host and not named["expandable_segments"].host
    assert "workers" not in [knob.name for knob in list_knobs(saved(), "8GiB")]
    with pytest.raises(InputError, match="workers saves host RAM alone, and plans look at that where they are told"):
        fit(saved(), "8GiB", workers=8, allow=["workers"])


@pytest.mark.parametrize(("ram", "said"), [("16", "ram must be a size with its unit"), ("1GiB", "takes by itself")])
def test_ram_that_cannot_be_is_refused_before_anything_is_traced(ram: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        fit("torchvision:no_such_model", "8GiB", ram=ram)
    with pytest.raises(InputError, match=said):
        oomproof.check("torchvision:no_such_model", "8GiB", ram=ram)


def test_the_least_of_a_change_that_harms() -> None:
    """A shuffle is turned after all that keeps the order, and then as little as may be."""
    prefetch = Knob("prefetch", tuple(Option(n, {"prefetch": n}) for n in (8, 1)), "identical", "", host=True)
    shuffle = Knob("shuffle", tuple(Option(n, {"shuffle": n}) for n in (64, 32, 16)), "different", "", host=True)

    def bytes_of(settings: Mapping[str, Any]) -> int:
        return (int(settings["prefetch"]) * 2 + int(settings["shuffle"])) * MIB

    def chosen(ram: int) -> dict[str, Any]:
        found = choose(Host(bytes_of, ram * MIB), Settings({"prefetch": 8, "shuffle": 64}), (shuffle, prefetch))
        return {knob.name: option.value for knob, option in found}

    assert chosen(80) == {}
    assert chosen(66) == {"prefetch": 1}
    assert chosen(40) == {"prefetch": 1, "shuffle": 32}
    assert chosen(48) == {"shuffle": 32}  # enough by itself
    assert chosen(10) == {"prefetch": 1, "shuffle": 16}  # all there is


def test_what_a_later_change_leaves_room_for_is_turned_back() -> None:
    ready = Knob("ready", tuple(Option(n, {"ready": n}) for n in (8, 6, 4, 1)), "identical", "", host=True)
    workers = Knob("workers", tuple(Option(n, {"workers": n}) for n in (64, 32)), "equivalent", "", host=True)

    def bytes_of(settings: Mapping[str, Any]) -> int:
        return (int(settings["ready"]) * 4 + int(settings["workers"])) * MIB

    found = choose(Host(bytes_of, 60 * MIB), Settings({"ready": 8, "workers": 64}), (ready, workers))
    assert {knob.name: option.value for knob, option in found} == {"ready": 6, "workers": 32}


def test_what_waits_in_shared_memory_becomes_less() -> None:
    """64 MiB, as Docker has it, are too little for any worker here; 400 MiB are enough for one with two batches."""
    plan = fit(saved(), "8GiB", shm=400 * MIB, workers=8, prefetch_factor=4)
    assert plan.fits and plan.after.shm <= 400 * MIB == plan.after.shm_limit < plan.before.shm
    assert plan.after.ram is None
    assert oomproof.check(saved(), "8GiB", shm=400 * MIB, **plan.settings).fits
    more = fit(saved(), "8GiB", shm=1200 * MIB, workers=8, prefetch_factor=4, keep="identical")
    assert turned(more) == [("prefetch_factor", 1, "identical")] and more.after.shm == 9 * BATCH * MIB
    docker = fit(saved(), "8GiB", shm="64MiB", workers=8, prefetch_factor=4)
    assert not docker.fits and any("--set workers=0" in each for each in docker.needs)
    assert fit(saved(), "8GiB", shm="64MiB", workers=0).fits
