"""Runs a command until it is done, another error ends it, or there is nothing left to try."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oomproof.run.supervisor.child import FinishedRun, run_command
from oomproof.run.supervisor.ending import Ending, judge_ending
from oomproof.run.supervisor.flags import Known, Next, apply_plan, fewer_workers, flags_of_script, smaller

ALLOCATORS = {
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "PYTHONUNBUFFERED": "1",
}
"""what helps and changes no result: less fragmentation, no pool that takes the whole GPU, a log that is there when a
process is killed"""
BUDGET = "OOMPROOF_BUDGET"
"""bytes of the device, for oomproof.Guard in the training"""


@dataclass(frozen=True)
class Request:
    command: list[str]
    tries: int = 5
    """starts after the first"""
    resume: tuple[str, ...] = ()
    """arguments that make the script go on from its last checkpoint"""
    plan: Mapping[str, Any] | None = None
    """settings of a plan"""
    batch_flag: str = ""
    accumulate_flag: str = ""
    budget: int | None = None
    ram: int = 1 << 60


@dataclass(frozen=True)
class SupervisedRun:
    code: int
    starts: int
    ending: Ending
    words: str


def supervise(
    request: Request,
    say: Callable[[str], None],
    run: Callable[[Sequence[str], Mapping[str, str]], FinishedRun] = run_command,
) -> SupervisedRun:
    command, starts = list(request.command), 0
    known = flags_of_script(command)
    extra = {name: value for name, value in ALLOCATORS.items() if name not in os.environ}
    if request.budget is not None:
        extra[BUDGET] = str(request.budget)
    waiting = [request.plan] if request.plan else []
    while True:
        again = [*command, *request.resume] if starts else command
        starts += 1
        ended = run(again, extra)
        ending = judge_ending(ended, request.ram)
        code = 128 - ended.code if ended.code < 0 else ended.code
        if ending.kind in ("done", "stopped"):
            return SupervisedRun(code, starts, ending, f"done after {starts} starts" if starts > 1 else "")
        verdict = ending.diagnosis.verdict
        if ending.kind == "other":
            return SupervisedRun(code, starts, ending, f"exit code {code}, which memory has no part in: {verdict}")
        if starts > request.tries:
            return SupervisedRun(
                code, starts, ending, f"gave up after {starts} starts: {verdict}; {ending.diagnosis.next}"
            )
        if ending.kind == "killed":
            say(
                "killed by signal 9, and nothing speaks of memory: starting it again as it "
                f"was{_describe_resuming(request)}"
            )
            continue
        step = _next_step(command, ending, request, waiting, known)
        if step is None:
            words = f"no flag of the command can be made thriftier: {verdict}; next: {ending.diagnosis.next}"
            return SupervisedRun(code, starts, ending, words)
        say(f"{verdict}: starting it again with {step.says}{_describe_resuming(request)}")
        command = step.command


def _next_step(command: list[str], ending: Ending, request: Request, waiting: list[Any], known: Known) -> Next | None:
    if ending.where == "host" and (found := fewer_workers(command)) is not None:
        return found
    if waiting:
        plan = waiting.pop()
        if (found := apply_plan(command, plan.get("batch"), plan.get("accumulate"), known)) is not None:
            return found
    return smaller(command, known, request.batch_flag, request.accumulate_flag, request.command)


def _describe_resuming(request: Request) -> str:
    if request.resume:
        return f", with {' '.join(request.resume)}"
    return "; from its beginning, unless it resumes by itself (--resume-with says how)"
