"""Facts -> Diagnosis: the rules are asked, ranked, and put into three lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oomproof.diagnosis import advice, not_memory
from oomproof.diagnosis.causes import RULES, moment, rank_causes
from oomproof.diagnosis.conclude import NO_RIVALS, conclude
from oomproof.diagnosis.diagnosis import Cause, Diagnosis
from oomproof.diagnosis.facts import Facts, Failure, ProgressLine

LEAST = 0.3
"""below this, a cause is not called the cause"""
AFTERMATH = ("ChildFailedError", "CalledProcessError", "ProcessExitedException", "SystemExit", "RuntimeError")
"""exceptions of those who watch a process that was killed"""
NEARLY_NOTHING = 0.05
"""of the time a run took: what may be left of it when it says that it is done"""
_CLOCK = r"((?:\d{1,4} days?, )?\d{1,3}:\d\d:\d\d)"
_TIMES = re.compile(rf"(?:Overall training speed: \d+ iterations in|Total training time:) {_CLOCK}")
_TIME_LEFT = re.compile(rf"\beta: {_CLOCK}")
_OF_STEPS = re.compile(r"\b(?:steps?|iter\w{0,6}(?:\(train\))?|it)\W{0,3}(\d{1,9})\s?/\s?(\d{1,9})\b", re.IGNORECASE)
SEND = "send the last 100 lines before the end, with the traceback, and: nvidia-smi ; free -g ; dmesg -T | tail"


def diagnose(facts: Facts) -> Diagnosis:
    causes = rank_causes(_causes(facts))
    causes = tuple(replace(cause, next=cause.next or advice.advise_next_step(cause.id, facts)) for cause in causes)
    return _mention_later_run(facts, conclude(causes, describe_facts(facts)))


def _mention_later_run(facts: Facts, found: Diagnosis) -> Diagnosis:
    later = moment.find_later_run(facts, facts.main) if facts.main is not None else None
    if later is None or found.cause in NO_RIVALS:
        return found
    end = "came to its end" if later.doing == "done" else "goes on"
    return replace(found, why=f"{found.why}; a later run in this log {end} (line {later.line})")


def _causes(facts: Facts) -> list[Cause]:
    error = _another_error(facts)
    if error is not None:
        return [error]
    if facts.main is None:
        return [_no_failure(facts)]
    found = [cause for rule in RULES for cause in rule(facts)]
    if not found or max(cause.confidence for cause in found) < LEAST:
        found.append(_make_unknown_cause(facts.main))
    return found


def _another_error(facts: Facts) -> Cause | None:
    """An error of another kind that ended the run, where of memory there is at most the word that it was killed."""
    errors = _reasons(facts)
    if not errors:
        return None
    named = [error for error in errors if error.kind != "exception"]
    last = errors[-1]
    # Of a broken card, the driver's word comes before whatever the program meets next.
    broken = [error for error in errors if error.kind == "hardware" and last.at - error.at < 200]
    if broken:
        last = broken[0]
    if named and last.kind == "exception" and last.at - named[-1].at < 200:
        last = named[-1]
    what, step = not_memory.ADVICE.get(
        last.kind,
        (f"the run ended with {last.op or 'an error'}", "read the traceback above that line; memory has no part in it"),
    )
    again = f"; {len(facts.errors)} such lines in the log" if len(facts.errors) > 3 else ""
    return Cause(
        "not_memory",
        0.9,
        f"not a memory failure: {what}",
        f"{moment.quote_line(last)}{again}; no message about memory that ran out is in the log",
        (moment.quote_line(last),),
        step,
    )


def _reasons(facts: Facts) -> list[Failure]:
    """The errors that explain the end, as far as memory does not."""
    found = _errors_of_last_job(facts)
    errors, main = [error for error in found if error.fatal] or found, facts.main
    if main is None:
        return errors if errors and moment.find_later_run(facts, errors[-1]) is None else []
    if main.family == "handle":
        return [error for error in errors if error.kind == "version"]
    if main.family != "exit" and (main.family, main.kind) != ("loader", "worker_gone"):
        return []
    # Launchers kill what is left when one process fails: what came before the kill is the reason.
    return [
        error
        for error in errors
        if error.at < main.at
        and not _has_trained_between(facts, error, main)
        and error.kind not in ("nan", "terminated", "nccl")
        and not (error.kind == "exception" and error.op in AFTERMATH)
    ]


def _errors_of_last_job(facts: Facts) -> list[Failure]:
    """A batch system appends job after job to one file, and says where it ended each that it cancelled."""
    ends = [error for error in facts.errors if error.kind == "terminated" and "*** JOB" in error.quote]
    if len(ends) < 2 or ends[-1] is not facts.errors[-1]:
        return list(facts.errors)
    return [error for error in facts.errors if error.at > ends[-2].at]


def _has_trained_between(facts: Facts, first: Failure, then: Failure) -> bool:
    return any(
        first.at < step.at < then.at and step.doing == "train" and (step.step, step.epoch) != (None, None)
        for step in facts.progress
    )


def _no_failure(facts: Facts) -> Cause:
    warnings = [failure for failure in facts.failures if not failure.fatal]
    if warnings:
        return _warning(facts, warnings)
    if facts.size == 0:
        return Cause("unknown", 0.0, "cannot tell: the log is empty", "there is nothing in it", (), SEND)
    end = _find_end(facts)
    if end is not None:
        return Cause(
            "not_memory",
            0.8,
            "not a memory failure: the run came to its end",
            f"line {end.line}: {end.text}",
            (f"line {end.line}: {end.text}",),
            "nothing has to be done",
        )
    last = facts.progress[-1] if facts.progress else None
    where = f"; the last thing it did: line {last.line}: {last.text}" if last else ""
    outlived = facts.errors[-1] if facts.errors else None
    past = f"; the error of line {outlived.line} is not the end, a run went on behind it" if outlived else ""
    return Cause(
        "unknown",
        0.0,
        f"cannot tell: the {'end of the ' if outlived else ''}log has no known error and no word about memory",
        f"{facts.lines:,} line{'s were' if facts.lines != 1 else ' was'} read{past}{where}",
        (),
        SEND,
    )


def _find_end(facts: Facts) -> ProgressLine | None:
    """The line that says that training is done, or the last one of its last epoch."""
    done = [step for step in facts.progress if step.doing == "done"]
    if done:
        return None if _has_work_left(facts, done[-1]) else done[-1]
    epochs = [step for step in facts.progress if step.epoch is not None and step.doing in ("train", "eval")]
    if not epochs:
        return _find_last_step(facts)
    counted = [step for step in epochs if step.epochs] or epochs
    if not counted:
        return None
    last, total = counted[-1].epoch or 0, counted[-1].epochs or facts.setup.epochs or 0
    from_zero = epochs[0].epoch == 0
    return facts.progress[-1] if 0 < total <= last + (1 if from_zero else 0) else None


def _find_last_step(facts: Facts) -> ProgressLine | None:
    """In a run that counts steps alone: the one that is the last of those it was to make."""
    trained = [step for step in facts.progress if step.doing == "train"]
    of = _OF_STEPS.search(trained[-1].text) if trained else None
    return trained[-1] if of and of[1] == of[2] else None


def _has_work_left(facts: Facts, done: ProgressLine) -> bool:
    """Detectron2 sums up its times when it is interrupted, too; then its last estimate of what is left is not small."""
    trained = [step for step in facts.progress if step.doing == "train"]
    took, left = _TIMES.search(done.text), _TIME_LEFT.search(trained[-1].text) if trained else None
    return bool(took and left and _count_seconds(left[1]) > NEARLY_NOTHING * _count_seconds(took[1]))


def _count_seconds(clock: str) -> int:
    days, _, rest = clock.rpartition(" day")
    hours, minutes, seconds = (int(part) for part in rest.rsplit(" ", 1)[-1].split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _warning(facts: Facts, warnings: list[Failure]) -> Cause:
    first = warnings[0]
    after = [step for step in facts.after(warnings[-1]) if step.doing in ("train", "eval", "done")]
    on = f"; the run went on (line {after[-1].line})" if after else "; no step behind it shows that the run went on"
    meaning = {
        "workspace": (
            "cuDNN tried an algorithm with a large workspace, got none, and took another: "
            "the message itself says it is not a failure"
        ),
        "plan": "cuDNN tried a plan with a large workspace, got none, and took another",
        "large_copy": "TensorFlow tells that one allocation is larger than a tenth of the free RAM; it was served",
        "on_cpu": "the operation ran out on the GPU and was done on the CPU instead: slow, but right",
        "driver": "TensorFlow asked for less after each refusal and went on with what it got",
        "numbers": "the program caught it and went on",
    }.get(first.kind, "the message is a warning, and nothing failed after it")
    return Cause(
        "benign_warning",
        0.9 if after or first.kind in ("workspace", "plan", "large_copy") else 0.6,
        f"not a failure: {len(warnings)} warning{'s' if len(warnings) > 1 else ''} about memory",
        f"{meaning}{on}",
        tuple(moment.quote_line(each) for each in warnings[:3]),
    )


def _make_unknown_cause(failure: Failure) -> Cause:
    return Cause(
        "unknown",
        LEAST,
        f"cannot tell: memory ran out ({failure.where or 'where is not said'}), but the log does not say why",
        moment.quote_line(failure),
        (moment.quote_line(failure),),
        SEND,
    )


def describe_facts(facts: Facts) -> Mapping[str, Any]:
    """The facts as docs/json.md promises them: bytes as integers, None where the log does not say."""
    failure = facts.main
    before = moment.last(facts, failure) if failure else facts.progress[-1] if facts.progress else None
    steps = (
        moment.find_training_steps(facts, failure)
        if failure
        else [step for step in facts.progress if step.doing == "train"]
    )
    epoch = next((step.epoch for step in reversed(steps) if step.epoch is not None), None)
    number = next((step.step for step in reversed(steps) if step.step is not None), None)
    return {
        "family": failure.family if failure else None,
        "where": failure.where if failure else None,
        "line": failure.line if failure else None,
        "requested": failure.requested if failure else None,
        "total": failure.total if failure else None,
        "free": failure.free if failure else None,
        "allocated": failure.allocated if failure else None,
        "reserved": failure.reserved if failure else None,
        "process": failure.process if failure else None,
        "others": [list(each) for each in failure.others] if failure else [],
        "limit": failure.limit if failure else None,
        "device": failure.device or None if failure else None,
        "shape": list(failure.shape) if failure else [],
        "dtype": failure.dtype or None if failure else None,
        "op": failure.op or None if failure else None,
        "frames": [frame.place for frame in failure.frames[-12:]] if failure else [],
        "rank": failure.rank or None if failure else None,
        "exit_code": failure.exit_code if failure else None,
        "doing": before.doing if before else None,
        "epoch": epoch,
        "step": number,
        "failures": len(facts.failures),
        "framework": facts.setup.framework or None,
        "batch": facts.setup.batch,
        "workers": facts.setup.workers,
        "gpu": facts.setup.gpu or None,
        "lines": facts.lines,
        "size": facts.size,
    }
