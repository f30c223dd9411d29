"""All that is known of a problem by arithmetic, from the steps that were traced so far."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from oomproof.memory.timeline import Timeline
from oomproof.plan.estimates.roofline import seconds_of
from oomproof.plan.estimates.room import Room
from oomproof.plan.estimates.traced_step import TracedStep, split_by_size
from oomproof.plan.estimates.way import Way
from oomproof.plan.estimates.ways import Ways
from oomproof.plan.problem import ESTIMATED, Problem
from oomproof.plan.turned_knobs import Turned, describe_turned
from oomproof.sources.job import Settings


@dataclass(frozen=True, eq=False)
class Estimates:
    """Knows the ways of a problem; a search that learns something makes another one."""

    problem: Problem
    base: tuple[TracedStep, ...]
    """the job as it is, traced for one number of images or two"""
    room: Room
    ways: Ways
    seconds_before: float
    """of one image, in the job as it is"""
    state: int
    """bytes of the optimizer's state"""
    steps: Mapping[str, TracedStep] = field(default_factory=dict)
    """traced with other knobs turned, by what these are in words"""
    impossible: frozenset[tuple[str, int]] = frozenset()
    """knobs turned and micro-batches with which the job cannot run, such as one image before a batch normalisation of
    single values"""

    # -- what a search learns ----------------------------------------------------------------------------------

    def with_steps(self, steps: Iterable[TracedStep]) -> Estimates:
        return replace(self, steps={**self.steps, **{describe_turned(step.turned): step for step in steps}})

    def without(self, way: Way) -> Estimates:
        """The job cannot run this way: not with these modules computed again, or not with so few images."""
        if way.recomputed.modules:
            paths = [module.partition(":")[0] for module in way.recomputed.modules]
            return replace(self, ways=self.ways.without(paths))
        return replace(self, impossible=self.impossible | {(describe_turned(way.step.turned), way.images)})

    def with_problem(self, problem: Problem) -> Estimates:
        """The same with other knobs that may be turned."""
        return replace(self, problem=problem, ways=Ways(problem.speed, problem.knobs))

    # -- ways --------------------------------------------------------------------------------------------------

    def find_fitting(self, steps: Sequence[TracedStep]) -> list[Way]:
        """Those that should fit, for each number of images from the step that is the nearest to it."""
        return [
            way for step in steps for way in self.ways.find_fitting(step, self.room.live, self.batches(step, steps))
        ]

    def batches(self, step: TracedStep, among: Sequence[TracedStep]) -> list[Turned | None]:
        """Micro-batches that a step, among others, is the nearest to."""
        batch, turned = self.problem.batch, describe_turned(step.turned)
        if batch is None:
            return [None] if (turned, step.images) not in self.impossible else []
        rivals = [each.images for each in among if each.turned == step.turned]
        sizes = {option.settings[self.problem.batch_name]: option for option in batch.options}
        return [
            (batch, option)
            for size, option in sizes.items()
            if (turned, size) not in self.impossible
            if min(rivals, key=lambda images: abs(math.log(images / size))) == step.images
        ]

    def estimate(self, turned: Sequence[Turned]) -> Way | None:
        """What turning these knobs, and nothing else, should come to; None where that wants a trace."""
        batch = self.problem.batch
        given = [each for each in turned if each[0].name in ESTIMATED or each[0] is batch]
        apart = tuple(each for each in turned if each not in given)
        if batch is not None and not any(knob is batch for knob, _ in given):
            given.append((batch, batch.options[0]))
        step = self._step_for(apart) if apart else self._nearest(given)
        return None if step is None else self.ways.bare(step, tuple(given))

    def as_it_is(self) -> Way:
        way = self.estimate(())
        assert way is not None
        return way

    def thriftiest(self, step: TracedStep) -> Way:
        batch = self.problem.batch
        return self.ways.thriftiest(step, None if batch is None else (batch, batch.options[-1]))

    def _step_for(self, turned: tuple[Turned, ...]) -> TracedStep | None:
        traced, by_size = split_by_size(turned)
        start = self.steps.get(describe_turned(traced)) if traced else self.base[0]
        if start is None or not by_size:
            return start
        return start.resize(turned, self.problem.with_turned(turned))

    def _nearest(self, given: Sequence[Turned]) -> TracedStep:
        sizes = [option.settings[self.problem.batch_name] for knob, option in given if knob is self.problem.batch]
        size = sizes[0] if sizes else 1
        return min(self.base, key=lambda each: abs(math.log(each.images / size)))

    # -- time --------------------------------------------------------------------------------------------------

    def seconds(self, step: Timeline, settings: Settings) -> float:
        """Of one image, in a full trace (which shows one of the micro-batches of an accumulated step)."""
        state = self.state if settings.get("optimizer_state") == "host" else 0
        return seconds_of(step, self.problem.speed, settings.images, int(settings.get("accumulate", 1)), state)

    def time(self, seconds: float) -> float:
        """As a factor of the job as it is."""
        return seconds / self.seconds_before
