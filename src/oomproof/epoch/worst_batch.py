"""From a job, a dataset and a device to the Forecast of the worst batch that an epoch can make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from oomproof.data.annotations.dataset import Dataset
from oomproof.data.annotations.in_ram import find_host_data
from oomproof.epoch.drawing import Drawn, draw_epochs
from oomproof.epoch.exploring import Exploring, Places, TracedBatch
from oomproof.epoch.features import find_padded_size
from oomproof.epoch.few import find_few, find_usual
from oomproof.epoch.images import Images, see_images
from oomproof.epoch.limits import find_limit
from oomproof.epoch.memory_model import MemoryModel
from oomproof.epoch.remedies import find_remedies
from oomproof.memory.batch_rule import describe_rule, regroup
from oomproof.memory.epoch import Batch, Epoch, Remedy
from oomproof.memory.forecast import OUTCOMES, Forecast
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Job
from oomproof.trace.request import TraceRequest


@dataclass(frozen=True, eq=False)
class WorstBatch:
    step: Timeline
    forecast: Forecast
    """with what the epoch brings beside it"""


def find_worst_batch(job: Job, dataset: Dataset, request: TraceRequest, grouped: bool | None = None) -> WorstBatch:
    """``grouped``: whether the data loader keeps upright and lying images apart; None: as the job has it."""
    rule = regroup(job.batch_rule(request.settings), grouped)
    exploring = Exploring(job, see_images(dataset, rule), request, find_host_data(dataset).as_mapping())
    images = exploring.images
    few = find_few(images, exploring.count) if job.traces_take_long else []
    if few:
        worst, typical, model = _explore_few(exploring, few)
        drawn = draw_epochs(images, model, exploring.count)
        drawn = replace(drawn, typical=typical.places, sides=None)
    else:
        worst, model = exploring.explore()
        request.progress("drawing epochs")
        drawn = draw_epochs(images, model, exploring.count)
        typical = _trace_typical(exploring, drawn)
    request.progress("tracing both on sparse data")
    worst, typical = exploring.look_at_least(worst), exploring.look_at_least(typical)
    forecasts = [each.forecast for each in (*exploring.traced.values(), typical)]
    chance, is_bound = _chance(worst.forecast, forecasts, drawn)
    epoch = Epoch(
        data=dataset.path,
        images=min(len(images), len(dataset)),  # fewer than a batch are taken again and again
        batches=drawn.batches,
        rule=describe_rule(rule),
        exact=rule.exact,
        worst=_batch(images, worst, None),
        typical=_batch(images, typical, drawn),
        chance=chance,
        chance_is_bound=is_bound,
        remedies=_remedies(exploring, model, worst.forecast, forecasts),
        traces=len(exploring.traced) + (not few),
        left_out=images.left_out,
        samples=drawn.samples,
        padded_objects=rule.padded_objects,
    )
    return WorstBatch(worst.step, replace(worst.forecast, epoch=epoch))


def _explore_few(exploring: Exploring, few: Sequence[Places]) -> tuple[TracedBatch, TracedBatch, MemoryModel]:
    """The worst, the usual batch, and what memory follows by as far as these tell."""
    for places in few:
        exploring.trace(places, "tracing what can be the worst batch")
    worst = exploring.find_worst_traced()
    typical = exploring.trace(find_usual(exploring), "tracing a usual batch")
    return worst, typical, exploring.fit()


def _trace_typical(exploring: Exploring, drawn: Drawn) -> TracedBatch:
    if drawn.sides is None:
        return exploring.trace(drawn.typical, "tracing the typical batch")
    spec = exploring.images.spec(drawn.typical, drawn.sides)
    return exploring.trace_spec(drawn.typical, spec, "tracing the typical batch")


def _batch(images: Images, of: TracedBatch, drawn: Drawn | None) -> Batch:
    padded = find_padded_size(images, of.places, None if drawn is None else drawn.sides)
    answer = of.forecast
    return Batch(of.spec, padded, answer.allocated, answer.on_device, answer.on_device_outcome)


def _chance(worst: Forecast, traced: Sequence[Forecast], drawn: Drawn) -> tuple[float, bool]:
    if worst.on_device_outcome == OUTCOMES[0]:
        return 0.0, False
    return drawn.chance_above(find_limit(traced, worst.on_device_outcome))


def _remedies(
    exploring: Exploring, model: MemoryModel, worst: Forecast, traced: Sequence[Forecast]
) -> tuple[Remedy, ...]:
    if worst.on_device_outcome == OUTCOMES[0]:
        return ()
    exploring.request.progress("looking for what to change about the data")
    limit = min(find_limit(traced, OUTCOMES[1]), _least_failed(exploring, model) - 1)
    return find_remedies(exploring.images, model, exploring.count, limit)


def _least_failed(exploring: Exploring, model: MemoryModel) -> float:
    """What the model makes of the batches that were traced and do not fit: where it takes them for smaller than they
    are, it must not take them for remedied."""
    failed = [each for each in exploring.traced.values() if each.forecast.on_device_outcome != OUTCOMES[0]]
    return min((float(exploring.rate(model, [each.places])[0]) for each in failed), default=float("inf"))
