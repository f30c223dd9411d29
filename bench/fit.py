"""How good plans are: trained for real under a real memory limit, against what people do today.

    python bench/fit.py [--quick] [--job resnet50] [--budget 50] [--json] [--markdown]

Every job is planned for 75, 50 and 35 % of the room that it takes above its weights, gradients and optimizer state. The
plan, and each rival at its best, then trains in a process of its own under RLIMIT_DATA: what does not fit fails for
real. Steps of all methods take turns, so that whatever else the machine does hits all alike. docs/plans.md explains.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch

from fit_jobs import JOBS, MAKERS, CpuJob, open_bench_job
from fit_table import OURS, Row, aims, budget_of, changed, document, markdown, table
from fit_worker import Worker

BUDGETS, FULL_SIZE = (75, 50, 35), (50,)
BESIDES = 64 << 20
"""bytes that a full-size job's process takes besides the allocator: the most that was measured for the others"""
QUICK = ("resnet50",)
WITHIN, STEPS = 4, 5
"""steps under the limit, and turns that are timed"""
BATCH_FINDERS = ("halving", "accelerate", "lightning")
KEPT = (1.0, 0.5, 0.0)
"""of the share of activations that the budget leaves, what is tried one after the other for torch.compile"""


@dataclass(frozen=True)
class Case:
    """A job under a budget."""

    job: CpuJob
    share: int
    budget: int
    room: int
    """bytes that the limit leaves: the budget and what the process takes besides"""
    threads: int

    def worker(self) -> Worker:
        return Worker(self.job_name, self.threads)

    @property
    def job_name(self) -> str:
        return next(name for name, make in MAKERS.items() if make().name == self.job.name)

    def row(self, method: str, settings: str, **more: Any) -> Row:
        return Row(self.job_name, self.share, self.budget, method, settings, **more)


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    began, load = time.monotonic(), os.getloadavg()[0]
    with Worker("tiny", options.threads) as worker:
        speed = worker.ask("speed")
    _say(
        f"this CPU, {options.threads} thread(s): {speed['tflops'] * 1e3:.0f} billion operations, "
        f"{speed['bandwidth']:.1f} GB a second; load {load:.1f}"
    )
    rows: list[Row] = []
    try:
        for name in options.job or (QUICK if options.quick else JOBS):
            for share in _cases(name, options):
                rows += _measured(share, speed, options)
    except KeyboardInterrupt:
        _say("stopped; what was measured so far:")
    about = {
        "load": [load, os.getloadavg()[0]],
        "threads": options.threads,
        "speed": speed,
        "torch": torch.__version__,
        "minutes": (time.monotonic() - began) / 60,
    }
    _show(rows, about, options)
    return 0 if rows else 1


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one job at one budget: about five minutes")
    parser.add_argument("--job", action="append", choices=list(MAKERS), help="only this job; may be given again")
    parser.add_argument("--budget", action="append", type=int, help="only this share in percent; may be given again")
    parser.add_argument("--threads", type=int, default=1, help="threads of every process (default: 1)")
    parser.add_argument("--backend", default="aot_eager", help="of torch.compile: aot_eager (default) or inductor")
    parser.add_argument("--json", action="store_true", help="a JSON document instead of the table")
    parser.add_argument("--markdown", action="store_true", help="the table as Markdown")
    options = parser.parse_args(arguments)
    for share in options.budget or ():
        if not 1 <= share <= 100:
            parser.error(f"--budget is a share in percent from 1 to 100; got {share}")
    return options


def _cases(name: str, options: argparse.Namespace) -> list[Case]:
    job = open_bench_job(name)
    _say(f"{name}: what it takes as it is")
    with Worker(name, options.threads) as worker:
        whole = _wanted(worker.ask("peak"), name)
    if job.full_size:
        besides = BESIDES
    else:
        with Worker(name, options.threads) as worker:
            limit = _wanted(worker.ask("smallest", near=whole["peak"], settings={}), name)["room"]
        besides = max(0, limit - whole["peak"])
    _say(
        f"{name}: peak {_mib(whole['peak'])}, of it weights, gradients and state {_mib(whole['floor'])}; the process "
        f"takes {_mib(besides)} besides"
    )
    shares = options.budget or (FULL_SIZE if options.quick or job.full_size else BUDGETS)
    budgets = {share: budget_of(whole["peak"], whole["floor"], share) for share in shares}
    return [Case(job, share, budget, budget + besides, options.threads) for share, budget in budgets.items()]


def _measured(case: Case, speed: dict[str, float], options: argparse.Namespace) -> list[Row]:
    """Every method's answer first; then all that have one train in turns."""
    where = f"{case.job_name} at {case.share} % ({_mib(case.budget)})"
    _say(f"{where}: planning")
    with case.worker() as worker:
        plan = worker.ask("plan", budget=case.budget, speed=speed)
    rows = {OURS: case.row(OURS, "", error=plan.get("error", "" if plan.get("fits") else "no plan fits"))}
    starts: dict[str, tuple[Row, str, dict[str, Any]]] = {}
    if not rows[OURS].error:
        ours = replace(rows[OURS], settings=changed(plan["settings"]), batch=case.job.batch, answer=plan["seconds"])
        starts[OURS] = (ours, "run", {"settings": plan["settings"], "batch": case.job.batch, "room": case.room})
    for how, found in _found(case, where).items():
        settings: dict[str, Any] = {"checkpoint": "nonreentrant"} if how == "checkpointing" else {}
        if "batch" not in found:
            rows[how] = case.row(how, "", answer=found.get("seconds", 0.0), error=found.get("error", "no answer"))
            continue
        row = case.row(how, changed({**settings, "batch": found["batch"]}), batch=found["batch"])
        if case.job.full_size:
            rows[how] = replace(row, answer=found["seconds"])
            continue
        starts[how] = (
            replace(row, answer=found["seconds"]),
            "run",
            {"settings": {**settings, "batch": found["batch"]}, "batch": found["batch"], "room": case.room},
        )
    if case.job.full_size:
        pass
    elif case.job.detector:
        rows["compile"] = case.row("compile", "", error="torch.compile is not tried on detectors")
    else:
        starts["compile"] = (case.row("compile", "", batch=case.job.batch), "compiled", {})
    _say(f"{where}: training in turns")
    rows |= _in_turns(case, starts, options)
    order = [method for method in (OURS, *BATCH_FINDERS, "checkpointing", "compile") if method in rows]
    for method in order:
        row = rows[method]
        _say(f"    {method}: {row.settings} {_outcome(row)}")
    return [rows[method] for method in order]


def _found(case: Case, where: str) -> dict[str, dict[str, Any]]:
    """What each rival that looks for a batch size finds, each in a process of its own."""
    found = {}
    for how in (*BATCH_FINDERS, *(() if case.job.full_size else ("checkpointing",))):
        _say(f"{where}: {how}")
        with case.worker() as worker:
            found[how] = worker.ask("find", how=how, room=case.room)
    return found


def _in_turns(
    case: Case, starts: dict[str, tuple[Row, str, dict[str, Any]]], options: argparse.Namespace
) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    seen: dict[str, str] = {}
    with ExitStack() as stack:
        running: dict[str, Worker] = {}
        for method, (row, what, request) in starts.items():
            key = json.dumps(request, sort_keys=True)
            if what == "run" and key in seen:  # two rivals with one answer: one process measures both
                rows[method] = row
                continue
            if what == "compiled":
                rows[method], worker = _compiled(case, row, options)
            else:
                rows[method], worker = _started(case, row, what, request)
                seen[key] = method
            if worker is not None:
                running[method] = worker
                stack.callback(worker.end)
        for _ in range(1 if case.job.full_size else STEPS):
            for method, worker in list(running.items()):
                times = max(1, round(case.job.batch / rows[method].batch))
                rows[method] = _stepped(rows[method], worker.ask("step", times=times))
    for method, (_, what, request) in starts.items():
        first = seen.get(json.dumps(request, sort_keys=True), method) if what == "run" else method
        rows[method] = replace(rows[method], steps=rows[first].steps, error=rows[first].error)
    return rows


def _started(case: Case, row: Row, what: str, request: dict[str, Any]) -> tuple[Row, Worker | None]:
    """A worker whose training has run inside the limit, and is ready to be timed; None where it does not run."""
    worker = case.worker()
    said = worker.ask(what, **request)
    for _ in range(1 if case.job.full_size else WITHIN):
        said = said if "error" in said else worker.ask("step")
    if not case.job.full_size:
        said = said if "error" in said else worker.ask("unlimited")
    if "error" in said:
        worker.end()
        return replace(row, error=said["error"]), None
    return row, worker


def _compiled(case: Case, row: Row, options: argparse.Namespace) -> tuple[Row, Worker | None]:
    """The largest share of activations that runs inside the limit."""
    for part in KEPT:
        share = round(case.share / 100 * part, 2)
        request = {"batch": case.job.batch, "room": case.room, "share": share, "backend": options.backend}
        tried = replace(row, settings=f"activation_memory_budget={share}")
        tried, worker = _started(case, tried, "compiled", request)
        if worker is not None:
            return tried, worker
    return tried, None


def _stepped(row: Row, said: dict[str, Any]) -> Row:
    if "error" in said:
        return replace(row, error=said["error"])
    return replace(row, steps=(*row.steps, said["seconds"]))


def _wanted(answer: dict[str, Any], name: str) -> dict[str, Any]:
    if "error" in answer:
        raise SystemExit(f"{name} does not run as it is: {answer['error']}")
    return answer


def _show(rows: list[Row], about: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(document(rows, about), indent=2))
        return
    print(markdown(rows) if options.markdown else table(rows))
    for name, (met, figures) in aims(rows).items():
        print(f"{'met' if met else 'MISSED'}: {name}: {figures}")
    before, after = about["load"]
    print(f"{about['minutes']:.0f} minutes; torch {about['torch']}; load {before:.1f} at first, {after:.1f} at last")


def _outcome(row: Row) -> str:
    if row.error:
        return row.error
    speed = f"{row.speed:.2f} images/s" if row.fits else "not timed"
    return f"{speed}, answer after {row.answer:.1f} s" if row.answer else speed


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
