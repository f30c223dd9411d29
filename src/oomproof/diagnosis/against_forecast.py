"""A log with the job at hand: what the forecast says the step needs, against what the log says it had."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from oomproof.diagnosis import advice
from oomproof.diagnosis.amounts import number, text
from oomproof.diagnosis.causes import RULES, rank_causes
from oomproof.diagnosis.causes.moment import describe_moment, late, quote_line
from oomproof.diagnosis.conclude import conclude
from oomproof.diagnosis.diagnose import describe_facts, diagnose
from oomproof.diagnosis.diagnosis import Cause, Diagnosis
from oomproof.diagnosis.facts import Facts, Failure
from oomproof.memory.forecast import Forecast

CAPACITY = ("batch_too_big", "model_or_image_too_big", "variable_shape")
MARGIN = 1.15
"""a log's figure beyond the forecast's upper bound by this factor is more than the step explains"""


def with_forecast(facts: Facts, forecast: Forecast) -> Diagnosis:
    """The causes again, with the forecast as one more witness."""
    plain = diagnose(facts)
    failure = facts.main
    if failure is None or not plain.is_memory or failure.where != "device":
        return replace(plain, facts={**plain.facts, **_figures(forecast)})
    found = [_weigh_cause(cause, failure, forecast) for rule in RULES for cause in rule(facts)]
    causes = rank_causes([*found, *_gaps(facts, failure, forecast), *_blame_worst_batch(facts, failure, forecast)])
    causes = tuple(replace(cause, next=cause.next or advice.advise_next_step(cause.id, facts)) for cause in causes)
    return conclude(causes, {**describe_facts(facts), **_figures(forecast)})


def _figures(forecast: Forecast) -> dict[str, int]:
    return {
        "forecast_allocated": int(forecast.allocated.expected),
        "forecast_reserved": int(forecast.reserved.expected),
        "forecast_device": int(forecast.on_device.expected),
        "forecast_device_high": int(forecast.on_device.high),
    }


def _room(failure: Failure, forecast: Forecast) -> int:
    return failure.limit or failure.total or forecast.budget


def _weigh_cause(cause: Cause, failure: Failure, forecast: Forecast) -> Cause:
    """Capacity is confirmed or refuted: the forecast knows what the step needs."""
    if cause.id not in CAPACITY:
        return cause
    need, room = forecast.on_device, _room(failure, forecast)
    line = (
        f"forecast {number(need.expected)} GiB ({number(need.low)} to {number(need.high)}) against {number(room)} GiB"
    )
    evidence = (*cause.evidence, line)
    if need.low > room:
        return replace(
            cause,
            confidence=min(0.95, cause.confidence + 0.35),
            why=f"{cause.why}; {line}: it cannot fit",
            evidence=evidence,
        )
    if need.high <= room:
        return replace(cause, confidence=cause.confidence * 0.5, why=f"{cause.why}; yet the {line}", evidence=evidence)
    return replace(cause, evidence=evidence)


def _blame_worst_batch(facts: Facts, failure: Failure, forecast: Forecast) -> Iterator[Cause]:
    """The data were read: a usual batch fits, the worst one does not, and the run had gone on for long."""
    epoch, step = forecast.epoch, late(facts, failure)
    if epoch is None or step is None or epoch.typical.outcome != "fits" or epoch.worst.outcome == "fits":
        return
    crowded = epoch.worst.spec.most_crowded_first[:3]
    worst = ", ".join(f"{each.name} ({each.objects} object{'s' * (each.objects != 1)})" for each in crowded)
    line = (
        f"a usual batch takes {text(epoch.typical.on_device.expected)}, the worst one of {epoch.data} "
        f"{text(epoch.worst.on_device.expected)} (at most {text(epoch.worst.on_device.high)})"
    )
    yield Cause(
        "variable_shape",
        0.96,  # above what the log alone says: the images are named
        f"device memory: {describe_moment(step)} went well, until a batch came that is larger than most: {worst}",
        f"{line}; about {epoch.chance:.2g} that an epoch has such a batch",
        (quote_line(failure), line),
    )


def _gaps(facts: Facts, failure: Failure, forecast: Forecast) -> Iterator[Cause]:
    """What the log has beyond the forecast is evidence by itself."""
    held, need = failure.allocated, forecast.allocated
    if held is None:
        return
    room = _room(failure, forecast)
    line = (
        f"the step needs {text(need.expected)} (at most {text(need.high)}) by the "
        f"forecast, the log shows {text(held)} allocated"
    )
    if held > need.high * MARGIN:
        step = late(facts, failure)
        more = number(held - need.expected)
        if step is not None:
            yield Cause(
                "leak", 0.7, (
                    f"device memory: {text(held)} were allocated where the step "
                    f"explains {text(need.expected)}"
                ),
                f"{line}: {more} GiB too many after {describe_moment(step)}; something is kept from step to "
                "step, or the data is larger than the job's",
                (quote_line(failure), line),
            )  # fmt: skip
        yield Cause(
            "variable_shape", 0.6, (
                f"device memory: {text(held)} were allocated where the "
                f"forecast has {text(need.expected)}"
            ),
            f"{line}: {more} GiB more than the batch that was forecast; larger images or more boxes than the job says",
            (quote_line(failure), line),
        )  # fmt: skip
    elif held < need.low and forecast.on_device.high <= room:
        free = failure.free or 0
        outside = room - free - (failure.reserved or held)
        if outside > 1 << 30:
            yield Cause(
                "other_process", 0.85, (
                    "device memory: the job fits this card, and "
                    f"{number(outside)} GiB of it are held by others"
                ),
                f"{line}; it had not got as far as it needs when {text(outside)} were missing",
                (quote_line(failure), line),
            )  # fmt: skip
