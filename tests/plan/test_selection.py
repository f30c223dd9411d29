"""Which knobs may be turned."""

from __future__ import annotations

import pytest

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.cards.devices import find_device
from oomproof.plan import selection
from oomproof.sources.job import Job, Knob, Option, Settings
from oomproof.sources.run_knobs import all_knobs, run_knobs


def knob(name: str, promise: str, *promises: str) -> Knob:
    options = (
        Option(0, {name: 0}),
        *(Option(place, {name: place}, promise=each) for place, each in enumerate(promises, 1)),
    )
    return Knob(name, options, promise, "why")


SAME, NEAR, OTHER = (knob(promise, promise, "") for promise in ("identical", "equivalent", "different"))
MIXED = knob("mixed", "identical", "", "equivalent", "different")
BACKWARDS = knob("backwards", "different", "equivalent")
CHECKPOINT = Knob("checkpoint", (Option("none", {"checkpoint": "none"}),), "identical", "why")
EVERY = (SAME, NEAR, OTHER, MIXED, BACKWARDS, CHECKPOINT)


def names(keep: str, allow: tuple[str, ...] = (), leave: tuple[str, ...] = ()) -> dict[str, list[int]]:
    return {
        each.name: [option.value for option in each.options]
        for each in selection.select_knobs(EVERY, keep, allow, leave)
    }


def test_identical_takes_nothing_weaker() -> None:
    assert names("identical") == {"identical": [0, 1], "mixed": [0, 1], "checkpoint": ["none"]}


def test_equivalent_takes_options_that_are() -> None:
    assert names("equivalent") == {
        "identical": [0, 1],
        "equivalent": [0, 1],
        "mixed": [0, 1, 2],
        "backwards": [0, 1],
        "checkpoint": ["none"],
    }


def test_what_is_named_is_taken_whole_and_what_is_left_is_not() -> None:
    assert names("equivalent", ("different", "mixed"))["different"] == [0, 1]
    assert names("equivalent", ("different", "mixed"))["mixed"] == [0, 1, 2, 3]
    assert set(names("equivalent", ("different",), ("identical", "checkpoint"))) == {
        "equivalent",
        "different",
        "mixed",
        "backwards",
    }


@pytest.mark.parametrize(
    ("keep", "allow", "leave", "said"),
    [
        ("different", (), (), "identical, equivalent; got 'different'"),
        ("", (), (), "got ''"),
        ("identical", ("image_size",), (), "contradict"),
        ("equivalent", ("a", "b"), ("b", "c"), "b cannot be both"),
    ],
)
def test_words_that_make_no_sense(keep: str, allow: tuple[str, ...], leave: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said) as raised:
        selection.check_words(keep, allow, leave)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("keep", selection.KEEP)
def test_words_that_do(keep: str) -> None:
    selection.check_words(keep, ())
    selection.check_words("equivalent", ("a",), ("b",))


def test_a_knob_that_the_job_does_not_have() -> None:
    selection.refuse_unknown_knobs("job", EVERY, ("mixed", "checkpoint"))
    with pytest.raises(InputError, match=r"job has no knob 'mixd'; did you mean mixed.* It has identical, ") as raised:
        selection.refuse_unknown_knobs("job", EVERY, ("mixed", "mixd"))
    with pytest.raises(InputError, match=r"no knob 'zzz'\. It has identical, "):
        selection.refuse_unknown_knobs("job", EVERY, ("zzz",))
    assert "\n" not in str(raised.value)


def test_half_precision_that_suits_the_card() -> None:
    halves = (Option(value, {"precision": value}, arithmetic=value) for value in ("bf16", "fp16"))
    precision = Knob("precision", (Option("fp32", {"precision": "fp32"}), *halves), "equivalent", "why")

    class Both(Job):
        def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
            return precision, MIXED

    def suited(card: str) -> list[str]:
        first, second, *_ = all_knobs(Both(), Settings(), About(), find_device(card))
        assert second.options == MIXED.options
        return [option.value for option in first.options]

    assert suited("RTX 2080 Ti") == suited("GTX 1080 Ti") == ["fp32", "fp16"]
    assert suited("RTX 3060") == suited("A100 80GB") == suited("8GiB") == ["fp32", "bf16"]


def test_knobs_of_the_run() -> None:
    def turned(**settings: bool) -> dict[str, tuple[bool, ...]]:
        found = run_knobs(Settings(settings), About(), find_device("8GiB"))
        assert all(
            each.options[0].settings.items() == {each.name: settings.get(each.name, False)}.items() for each in found
        )
        assert {each.promise for each in found} == {"identical"}
        return {each.name: tuple(option.value for option in each.options) for each in found}

    assert turned() == {"expandable_segments": (False, True)}
    assert turned(ddp=True)["gradient_as_bucket_view"] == (False, True)
    assert turned(cudnn_benchmark=True)["cudnn_benchmark"] == (True, False)
    assert set(turned(ddp=True, gradient_as_bucket_view=True)) == {"expandable_segments"}
    assert run_knobs(Settings({"expandable_segments": True}), About(), find_device("8GiB")) == ()
