"""The search: traces, confirms estimates, corrects them, and keeps a log of every attempt.

A few traces are enough. Everything that is a matter of arithmetic (micro-batches, what is computed again, where state
lives) is estimated from them, all combinations of it; the best is then traced in full. Where the trace says that it
does not fit after all, the estimate is corrected by what was found, and the next best is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from oomproof.errors import CannotDo, JobError, TooSmall
from oomproof.memory.forecast import Forecast
from oomproof.memory.timeline import KINDS, Timeline
from oomproof.plan import attempts
from oomproof.plan.another_training import steps_by_harm
from oomproof.plan.confirmed import Confirmed, confirm
from oomproof.plan.estimates import what_if
from oomproof.plan.estimates.estimates import Estimates
from oomproof.plan.estimates.room import Room, at_ease
from oomproof.plan.estimates.traced_step import TracedStep
from oomproof.plan.estimates.way import Way
from oomproof.plan.first_estimates import first_estimates, with_all_memory
from oomproof.plan.plan import Attempt
from oomproof.plan.problem import LIMIT, Problem
from oomproof.plan.step_tracer import StepTracer, count_images
from oomproof.plan.tracing import Tracing
from oomproof.plan.turned_knobs import Turned, combine
from oomproof.sources.job import PROMISES
from oomproof.trace.request import count_values

MOST_ASKED = 250
"""values that a step may ask for (boxes, matches) to be traced as it is; beyond, it is estimated from a small one"""
FAR = 4
"""how many times fewer images a way may have than the step that it is estimated from"""
MOST_TRIES = 6
"""full traces of one set of steps; and of combinations that make another training"""


class Search:
    """``begin``, then ``run``: ``best`` is the answer, or stays None."""

    def __init__(self, problem: Problem, tracing: Tracing) -> None:
        self.problem, self.tracing = problem, tracing
        self.attempts: list[Attempt] = []
        self.looked_at: list[Way] = []
        self.best: Confirmed | None = None
        self.missed: Confirmed | None = None
        """of what was traced and does not fit, the one that needs least"""
        self.before_estimated = False
        self.estimates: Estimates
        """from ``begin`` on"""
        self.tracer = StepTracer(problem, tracing, self.attempts)
        self._few_were_tried = problem.few == problem.images

    # -- the job as it is --------------------------------------------------------------------------------------

    def begin(self) -> Forecast:
        """The job's own forecast, and the first estimates."""
        problem = self.problem
        whole, base = self._trace_or_estimate_whole()
        self._check_parameters_fit(whole)
        forecast = self.tracing.forecast(whole, problem.settings)
        self.estimates = first_estimates(problem, self.tracing, whole, base, forecast)
        self.attempts.append(attempts.as_it_is(forecast, self.estimates, self.before_estimated))
        return forecast

    def _trace_or_estimate_whole(self) -> tuple[Timeline, tuple[TracedStep, ...]]:
        """The step as it is, and the traced steps to estimate from. Where tracing it would take long, because it asks
        for many values, and it would not fit, it is worked out from a step with few images."""
        problem, base = self.problem, list[TracedStep]()
        if not self.tracing.is_kept(problem.settings):
            self._few_were_tried = True
            base.append(self.tracer.trace_few())
            few, _ = self.tracing.trace(problem.at_images(problem.few, problem.settings), "")
            if count_values(few.about.values_asked) * problem.images / problem.few > MOST_ASKED:
                whole = self._whole_from_few(few)
                self.before_estimated = not self.tracing.forecast(whole, problem.settings).fits
                if self.before_estimated:  # an estimate that fits is not an answer
                    return whole, tuple(base)
        base.append(self.tracer.trace_whole())
        return self.tracing.trace(problem.settings, "")[0], tuple(base)

    def _whole_from_few(self, few: Timeline) -> Timeline:
        whole = what_if.with_images(few, self.problem.images / self.problem.few)
        return what_if.accumulate_gradients(whole) if self.problem.settings.get("accumulate", 1) > 1 else whole

    def _check_parameters_fit(self, step: Timeline) -> None:
        problem = self.problem
        weights = int(step.bytes[step.kind == KINDS.index("parameter")].sum())
        settings = problem.with_all_memory() if problem.room_may_grow else problem.settings
        terms = self.tracing.terms(step, settings)
        if terms.room_at_worst < weights:
            raise TooSmall(
                f"nothing fits {problem.device.name}, whatever the settings: the CUDA context takes up to "
                f"{terms.around.high / 2**30:.2f} GiB, which leaves less than the job's parameters alone "
                f"({weights / 2**20:.1f} MiB); take a larger device"
            )

    # -- ways --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Looks for the best way, in one stage after another until something fits."""
        self._settle(self._trace_combinations())
        if self.best is None and self.estimates.room.easy:
            self._set_room(self.estimates.room.pack_tight())
            self._settle(self._trace_combinations())
        if self.best is None and self.problem.room_may_grow and LIMIT not in self.problem.named:
            step = self.estimates.base[0].timeline
            self._set_room(with_all_memory(self.estimates.room, self.problem, self.tracing, step))
            self._settle(self._trace_combinations())
        if self.best is None:
            self._settle(self._trace_combinations(all_of_them=True))
        if self.best is None:
            self._settle_for_another_training()

    def find_nearest(self) -> Confirmed:
        """The way that comes nearest to fitting, traced in full."""
        every = self._trace_combinations(all_of_them=True)
        ways = [self.estimates.as_it_is(), *(self.estimates.thriftiest(each) for each in every)]
        return self._confirm(min(ways, key=lambda way: way.peak))

    def trace_each(self, sets: Sequence[tuple[Turned, ...]]) -> Estimates:
        """Estimates that know what each of these sets of turned knobs would come to by itself."""
        return self.estimates.with_steps(self.tracer.trace(turned) for turned in sets)

    def _trace_combinations(self, *, all_of_them: bool = False) -> list[TracedStep]:
        """The job as it is, and with every combination of the knobs that want a trace and make no other training."""
        wanted = self.problem.list_retraced_knobs(all_of_them=all_of_them)
        found = [step for turned in combine(wanted) if (step := self.tracer.trace_if_it_runs(turned))]
        self.estimates = self.estimates.with_steps(found)
        return [*self.estimates.base, *found]

    def _settle_for_another_training(self) -> None:
        """Confirms the least harm that fits, among combinations of the knobs that were allowed."""
        tried = 0
        different = [knob for knob in self.problem.knobs if knob.promise == PROMISES[2]]
        for _, steps in steps_by_harm(self.problem, self.estimates.base[0], different, self.tracer):
            if not self._settle(list(steps), tries=1):
                continue
            if self.best is None:  # the estimate was by proportion: a trace knows better
                self._settle([step for each in steps if (step := self.tracer.trace_if_it_runs(each.turned))])
            tried += 1
            if self.best is not None or tried >= MOST_TRIES:
                return

    def _settle(self, steps: list[TracedStep], tries: int = MOST_TRIES) -> bool:
        """Confirms the best of what the steps allow; false where nothing of it looks as if it would fit."""
        for turn in range(tries):
            found = self.estimates.find_fitting(steps)
            if self._base_grew(found):
                steps.insert(0, self.estimates.base[0])
                found = self.estimates.find_fitting(steps)
            self.looked_at += found
            if not found:
                self.attempts.append(attempts.nothing_fits(steps, self.estimates))
                return turn > 0
            way = min(found, key=lambda way: way.price)
            try:
                confirmed = self._confirm(way)
            except (CannotDo, JobError) as error:
                self.attempts.append(attempts.note_refusal(way, self.estimates, error))
                self.estimates = self.estimates.without(way)
                continue
            if confirmed.forecast.fits and (self.best is None or confirmed.price < self.best.price):
                self.best = confirmed
            if at_ease(confirmed.forecast):
                return True
            steps[steps.index(way.step)] = way.step.correct(confirmed.correction)
        return True

    def _confirm(self, way: Way) -> Confirmed:
        confirmed = confirm(way, self.estimates, self.tracing)
        if not confirmed.forecast.fits and (self.missed is None or confirmed.peak < self.missed.peak):
            self.missed = confirmed
        self.attempts.append(attempts.note_full_trace(confirmed, self.estimates, self.best))
        return confirmed

    def _base_grew(self, found: Sequence[Way]) -> bool:
        """Traces the step with few images too, where the best way has few, or where none fits by a step with many:
        estimates from far away are rough."""
        whole = self.estimates.base[-1]
        best = min(found, key=lambda way: way.price, default=None)
        far = best is None or (best.step.images == whole.images and best.images * FAR < whole.images)
        if self._few_were_tried or not far:
            return False
        self._few_were_tried = True
        try:
            few = self.tracer.trace_few()
        except (CannotDo, JobError) as error:
            self.attempts.append(attempts.cannot_run(f"as it is, with {count_images(self.problem.few)}", error))
            return False
        self.estimates = replace(self.estimates, base=(few, *self.estimates.base))
        return True

    def _set_room(self, room: Room) -> None:
        self.estimates = replace(self.estimates, room=room)
