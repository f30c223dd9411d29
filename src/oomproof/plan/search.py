"""The search: from knobs and a budget to the way of training that costs the least.

A few traces are enough. Everything that is a matter of arithmetic (micro-batches, what is computed again, where state
lives) is estimated from them, all combinations of it; the best is then traced in full. Where the trace says that it
does not fit after all, the estimate is corrected by what was found, and the next best is tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from oomproof.errors import InputError, JobError
from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Forecast
from oomproof.memory.timeline import KINDS, Timeline
from oomproof.plan import another_training, what_if
from oomproof.plan.another_training import combinations
from oomproof.plan.cost import Speed, speed_of
from oomproof.plan.first_trace import SMALL, at_images
from oomproof.plan.scale import PACKED, Scale, at_ease, scale_of
from oomproof.plan.tracing import Tracing
from oomproof.plan.ways import FREE, Estimator, Structure, Turned, Way, corrected, seconds_of
from oomproof.plan.wording import described
from oomproof.sources.job import PROMISES, Knob, Settings
from oomproof.trace.request import count_values

MOST_ASKED = 250
"""values that a step may ask for (boxes, matches) to be traced as it is; beyond, it is estimated from a small one"""
FAR = 4
"""how many times fewer images a way may have than the step that it is estimated from"""
MOST_TRIES = 6
TIGHT = 0.1
"""time that emptying the cache again and again is taken to cost, as a part of the step"""
LIMIT = "memory_limit_mb"
RUN = ("gradient_as_bucket_view", "cudnn_benchmark", "expandable_segments", "memory_growth", LIMIT)
"""knobs of the run around the step, in the order in which they are tried where a step does not fit by itself"""
ESTIMATED = (*FREE, "optimizer_state", "checkpoint", *RUN)
"""knobs that need no trace of their own"""


@dataclass(frozen=True)
class Confirmed:
    """A way that was traced in full."""

    way: Way
    settings: Settings
    forecast: Forecast
    seconds: float
    """of one image"""
    peak: int
    """live bytes with the least scratch: what the estimate should have been"""
    run: tuple[Turned, ...] = ()
    """knobs of the run around the step that it needs"""
    run_frees: tuple[int, ...] = ()
    """bytes of device memory that each of these frees"""

    @property
    def turned(self) -> tuple[Turned, ...]:
        return (*self.run, *self.way.turned)

    @property
    def price(self) -> float:
        """As ways are compared; living from hand to mouth has a price too."""
        return self.seconds * self.way.price / self.way.seconds * (1.0 if at_ease(self.forecast) else 1 + TIGHT)


@dataclass
class Search:
    tracing: Tracing
    settings: Settings
    knobs: tuple[Knob, ...]
    """those that may be turned"""
    named: tuple[str, ...] = ()
    """knobs the user asked for by name"""
    looked_at: list[Way] = field(default_factory=list)
    before_estimated: bool = False
    best: Confirmed | None = None
    missed: Confirmed | None = None
    """of what was traced and does not fit, the one that needs least"""
    base: tuple[Structure, ...] = ()
    """the job as it is, traced for one number of images or two: what everything is estimated from"""

    def __post_init__(self) -> None:
        self.speed: Speed = speed_of(self.device)
        self.estimator = Estimator(self.speed, self.knobs)
        self.by_name = {knob.name: knob for knob in self.knobs}
        self.batch = next((knob for knob in self.knobs if knob.role == "batch"), None)
        self._few_were_tried = self.few == self.images
        self._impossible: set[tuple[str, int]] = set()
        """knobs turned and micro-batches with which the job cannot run, such as one image before a batch normalisation
        of single values"""
        self.state, self.seconds_before, self.scale = 0, 1.0, Scale(self.device.budget, 0, 1.0, PACKED)

    @property
    def device(self) -> Device:
        return self.tracing.device

    @property
    def unasked(self) -> tuple[str, ...]:
        """Of the knobs that want a trace of their own, those that are tried without being named; the rest when nothing
        else fits, or when named."""
        return tuple(knob.name for knob in self.knobs if knob.role == "precision")

    @property
    def images(self) -> int:
        """In one forward pass of the job as it is."""
        return self.settings.images

    @property
    def few(self) -> int:
        """Images in the traces from which larger batches are estimated."""
        return self.images if self.batch is None else min(SMALL * self.settings.sharing, self.images)

    # -- the job as it is --------------------------------------------------------------------------------------

    def before(self) -> Forecast:
        """Its forecast; what everything is estimated from is in ``base`` then."""
        whole = self._whole_or_estimated()
        self._afford(whole)
        forecast = self.tracing.forecast(whole, self.settings)
        lean, besides = self.tracing.lean(whole, self.settings)
        self.scale = scale_of(
            forecast,
            self.tracing.terms(whole, self.settings),
            lean.peak().bytes + besides,
            expandable=not self.by_name.keys().isdisjoint(("expandable_segments", "memory_growth")),
        )
        if LIMIT in self.named:
            self._raise_limit(whole)
        self.state = what_if.state_bytes(whole)
        self.seconds_before = self.seconds(whole, self.settings)
        return forecast

    def _whole_or_estimated(self) -> Timeline:
        """The step as it is. Where that would take long to trace, because it asks for many values, and would not fit,
        it is worked out from a step with few images."""
        if not self.tracing.is_kept(self.settings):
            few = self._traced_with_few()
            asked = count_values(few.about.values_asked)
            if asked * self.images / self.few > MOST_ASKED:
                whole = self._from_few(few)
                self.before_estimated = not self.tracing.forecast(whole, self.settings).fits
                if self.before_estimated:  # an estimate that fits is no answer
                    return whole
        whole, _ = self.tracing.trace(self.settings, f"tracing the step as it is, with {self.images} images")
        self.base = (*self.base, self.tracing.structure((), self.settings, whole, self.images))
        return whole

    def _traced_with_few(self) -> Timeline:
        """Becomes a part of ``base``."""
        self._few_were_tried = True
        step, _ = self.tracing.trace(
            self._at(self.few), f"tracing the step with {self.few} image{'s' * (self.few > 1)}"
        )
        self.base = (self.tracing.structure((), self.settings, step, self.few), *self.base)
        return step

    def _from_few(self, step: Timeline) -> Timeline:
        whole = what_if.with_images(step, self.images / self.few)
        return what_if.accumulated(whole) if self.settings.get("accumulate", 1) > 1 else whole

    def _afford(self, step: Timeline) -> None:
        weights = int(step.bytes[step.kind == KINDS.index("parameter")].sum())
        room = self.tracing.terms(step, self._raised() if LIMIT in self.by_name else self.settings).room_at_worst
        if room < weights:
            raise InputError(
                f"{self.device.name} leaves {room / 2**30:.2f} GiB beside the CUDA context, less than the job's "
                f"parameters alone ({weights / 2**30:.2f} GiB): no setting can help; take a larger device"
            )

    # -- ways --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Looks for the best way; ``best`` is it, or stays None."""
        self.settle(self._structures(self.unasked))
        if self.best is None and self.scale.packed < PACKED:
            self.scale = replace(self.scale, packed=PACKED)
            self.settle(self._structures(self.unasked))
        if self.best is None and LIMIT in self.by_name and LIMIT not in self.named:
            self._raise_limit(self.base[0].step)
            self.settle(self._structures(self.unasked))
        if self.best is None:
            self.settle(self._structures(tuple(self.by_name)))
        if self.best is None:
            another_training.settle(self, self.base)

    def _raise_limit(self, step: Timeline) -> None:
        """From now on, ways may need what the framework takes of the device only when it is told to."""
        self.scale = replace(self.scale, room=self.tracing.terms(step, self._raised()).room_at_worst)

    def _raised(self) -> Settings:
        return self.settings.changed(self.by_name[LIMIT].options[-1].settings)

    def _structures(self, names: Sequence[str]) -> list[Structure]:
        """The job as it is, and with every combination of the knobs that want a trace and make no other training."""
        wanted = [
            knob
            for knob in self.knobs
            if knob.name not in ESTIMATED and knob is not self.batch and knob.promise != PROMISES[2]
            if knob.name in names or knob.name in self.named
        ]
        return [*self.base, *filter(None, map(self.retraced_if_it_runs, combinations(wanted)))]

    def retraced_if_it_runs(self, turned: tuple[Turned, ...]) -> Structure | None:
        """None where the job cannot turn these knobs: a network that cannot be cut, a library that is not there."""
        try:
            return self.retraced(turned)
        except (InputError, JobError):
            return None

    def retraced(self, turned: tuple[Turned, ...]) -> Structure:
        few, settings = self.few, self.with_turned(turned)
        self.tracing.done = max(0.2, self.tracing.done)
        step, _ = self.tracing.trace(self._at(few, settings), f"tracing with {described(turned)}")
        return self.tracing.structure(turned, settings, step, few)

    def settle(self, structures: list[Structure], tries: int = MOST_TRIES) -> bool:
        """Confirms the best of what the structures allow; false where nothing of it looks as if it would fit."""
        for turn in range(tries):
            found = [way for structure in structures for way in self.ways(structure, structures)]
            if self._base_grew(found):
                structures.insert(0, self.base[0])
                found = [way for structure in structures for way in self.ways(structure, structures)]
            self.looked_at += found
            if not found:
                return turn > 0
            way = min(found, key=lambda way: way.price)
            try:
                confirmed = self.confirm(way)
            except (InputError, JobError):
                self._pass_over(way)
                continue
            if confirmed.forecast.fits and (self.best is None or confirmed.price < self.best.price):
                self.best = confirmed
            if at_ease(confirmed.forecast):
                return True
            place = structures.index(way.structure)
            structures[place] = self._corrected(way, confirmed)
        return True

    def _base_grew(self, found: Sequence[Way]) -> bool:
        """Traces the step with few images too, where the best way has few, or where none fits by a step with many:
        estimates from far away are rough."""
        whole = self.base[-1]
        best = min(found, key=lambda way: way.price, default=None)
        far = best is None or (best.structure.images == whole.images and best.images * FAR < whole.images)
        if self._few_were_tried or not far:
            return False
        try:
            self._traced_with_few()
        except (InputError, JobError):
            return False
        return True

    def _pass_over(self, way: Way) -> None:
        """The job cannot run this way: not with these modules computed again, or not with so few images."""
        if way.choice.modules:
            self.estimator.forbid(module.partition(":")[0] for module in way.choice.modules)
        else:
            self._impossible.add((described(way.structure.turned), way.images))

    def ways(self, structure: Structure, among: Sequence[Structure]) -> list[Way]:
        """Those of the structure that should fit, for the batch sizes that it is the nearest trace to."""
        return self.estimator.fitting(structure, self.room, self.batches(structure, among))

    def batches(self, structure: Structure, among: Sequence[Structure]) -> list[Turned | None]:
        rivals = [each.images for each in among if each.turned == structure.turned]
        turned = described(structure.turned)
        if self.batch is None:
            return [None] if (turned, structure.images) not in self._impossible else []
        sizes = {option.settings[self._batch_name()]: option for option in self.batch.options}
        return [
            (self.batch, option)
            for size, option in sizes.items()
            if (turned, size) not in self._impossible
            if min(rivals, key=lambda images: abs(math.log(images / size))) == structure.images
        ]

    def _corrected(self, way: Way, confirmed: Confirmed) -> Structure:
        """The structure with what the full trace has taught: larger blocks, more fragments, larger workspaces."""
        blocks = confirmed.peak / max(1, way.peak)
        forecast = confirmed.forecast
        whole = 1 + forecast.excess / forecast.budget
        return corrected(way.structure, max(blocks, min(whole, 1.1), 1.02))

    # -- what is told beside the best way ----------------------------------------------------------------------

    def rank(self, knob: Knob) -> int:
        return list(self.by_name).index(knob.name)

    @property
    def room(self) -> int:
        """Bytes that blocks may take together, fragments and all that is unknown apart."""
        return int(self.scale.room * self.scale.packed)

    def on_device(self, peak: int) -> int:
        """About what nvidia-smi would show at worst, where ``peak`` bytes are live."""
        return self.scale.outside + int(peak / self.scale.packed * self.scale.margin)

    def estimate(self, base: Sequence[Structure], turned: Sequence[Turned]) -> Way:
        """What turning these knobs, and nothing else, should come to."""
        given = [each for each in turned if each[0].name in ESTIMATED or each[0] is self.batch]
        apart = tuple(each for each in turned if each not in given)
        if self.batch is not None and not any(knob is self.batch for knob, _ in given):
            given.append((self.batch, self.batch.options[0]))
        start = another_training.structure(self, base, apart) if apart else None
        if start is None:
            sizes = [option.settings[self._batch_name()] for knob, option in given if knob is self.batch]
            size = sizes[0] if sizes else 1
            start = min(base, key=lambda each: abs(math.log(each.images / size)))
        return self.estimator.bare(start, tuple(given))

    def nearest(self) -> Confirmed:
        """The way that comes nearest to fitting, traced in full."""
        every = self._structures(tuple(self.by_name))
        ways = [self.estimate(self.base, ()), *(self.thriftiest(each) for each in every)]
        return self.confirm(min(ways, key=lambda way: way.peak))

    def promising(self) -> Way | None:
        """The best way by estimate."""
        structures = self._structures(self.unasked)
        found = [way for structure in structures for way in self.ways(structure, structures)]
        return min(found, key=lambda way: way.price, default=None)

    def allowing(self, knobs: tuple[Knob, ...]) -> Search:
        """The same search with other knobs."""
        other = Search(self.tracing, self.settings, knobs, self.named)
        other.state, other.seconds_before, other.scale = self.state, self.seconds_before, self.scale
        other.base = self.base
        return other

    def thriftiest(self, structure: Structure) -> Way:
        batch = None if self.batch is None else (self.batch, self.batch.options[-1])
        return self.estimator.thriftiest(structure, batch)

    # -- full traces -------------------------------------------------------------------------------------------

    def confirm(self, way: Way) -> Confirmed:
        """Traces a way in full; the run around it is changed too where that makes it fit, or fit with ease."""
        settings = self.settings.changed(way.changed)
        self.tracing.done = min(0.9, max(0.4, self.tracing.done + 0.1))
        step, _ = self.tracing.trace(settings, f"confirming {described(way.turned, way)}")
        run: tuple[Turned, ...] = ()
        forecast = self.tracing.forecast(step, settings)
        run_frees: list[int] = []
        for knob in (self.by_name[name] for name in RUN if name in self.by_name):
            if at_ease(forecast):
                break
            then = self.tracing.forecast(step, settings.changed(knob.options[-1].settings))
            if (then.fits and not forecast.fits) or then.excess < forecast.excess:
                run = (*run, (knob, knob.options[-1]))
                run_frees.append(forecast.on_device.expected - then.on_device.expected)
                settings = settings.changed(knob.options[-1].settings)
                forecast = then
        lean, besides = self.tracing.lean(step, settings)
        peak, seconds = lean.peak().bytes + besides, self.seconds(step, settings)
        confirmed = Confirmed(way, settings, forecast, seconds, peak, run, tuple(run_frees))
        if not forecast.fits and (self.missed is None or confirmed.peak < self.missed.peak):
            self.missed = confirmed
        return confirmed

    def seconds(self, step: Timeline, settings: Settings) -> float:
        """Of one image, in a full trace (which shows one of the micro-batches of an accumulated step)."""
        state = self.state if settings.get("optimizer_state") == "host" else 0
        return seconds_of(step, self.speed, settings.images, int(settings.get("accumulate", 1)), state)

    # -- settings ----------------------------------------------------------------------------------------------

    def _batch_name(self) -> str:
        assert self.batch is not None
        return next(name for name in self.batch.options[0].settings if name != "accumulate")

    def _at(self, images: int, settings: Settings | None = None) -> Settings:
        """Settings for a trace of a few images, one micro-batch of them."""
        given = self.settings if settings is None else settings
        return given if self.batch is None else at_images(given, self._batch_name(), images)

    def with_turned(self, turned: Sequence[Turned]) -> Settings:
        settings = self.settings
        for _, option in turned:
            settings = settings.changed(option.settings)
        return settings
