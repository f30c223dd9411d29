"""Host memory that data workers take: killed ones, ones that could not be started, and the kernel's table of them."""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.diagnosis.amounts import number, text
from oomproof.diagnosis.causes import places
from oomproof.diagnosis.causes.moment import quote_line
from oomproof.diagnosis.diagnosis import Cause
from oomproof.diagnosis.facts import Facts, Failure

MANY = 8
GONE = ("worker_killed", "worker_gone", "fork", "mmap", "paging_file")


def workers(facts: Facts) -> Iterator[Cause]:
    failure = facts.main
    if failure is None or failure.where != "host":
        return
    yield from _in_the_table(facts)
    gone = [each for each in facts.failures if each.family == "loader" and each.kind in GONE]
    if gone:
        yield _blame_lost_workers(gone, _count_workers(facts))
    else:
        yield from _suspect_workers(facts, failure)


def _count_workers(facts: Facts) -> str:
    return f"{facts.setup.workers} workers" if (facts.setup.workers or 0) > 1 else "the workers"


def _in_the_table(facts: Facts) -> Iterator[Cause]:
    """The kernel lists every process: workers bear the name of the one that was killed."""
    for kernel in facts.failures:
        count, held = kernel.helpers
        if kernel.family == "kernel" and count >= 2 and held > (kernel.process or 0):
            yield Cause(
                "host_workers",
                0.88,
                f"host memory: {count} processes beside the killed one hold {text(held)}: data workers, most likely",
                f"the kernel's table: {count} of the name {kernel.victim}, {text(held // count)} each, hold "
                f"{number(held)} GiB, and the killed one held {text(kernel.process or 0)}",
                (quote_line(kernel),),
            )
            return


def _blame_lost_workers(gone: list[Failure], known: str) -> Cause:
    first, kinds = gone[0], {each.kind for each in gone}
    evidence = tuple(quote_line(each) for each in gone[:2])
    if "paging_file" in kinds:
        verdict = "host memory: Windows' paging file is too small for the data workers"
        return Cause(
            "host_workers",
            0.9,
            verdict,
            f"{known} each load PyTorch with its CUDA libraries, some GiB of commit each",
            evidence,
        )
    if first.op == "maps":
        verdict = "host memory: the workers hold more memory maps than the kernel allows a process"
        why = (
            "the file's counter is beyond 50,000, and vm.max_map_count is 65,530 by default; only "
            f"{text(first.requested or 0)} were asked for"
        )
        return Cause("host_workers", 0.85, verdict, why, evidence)
    if "mmap" in kinds or "fork" in kinds:
        what = "a new worker could not be started (fork)" if "fork" in kinds else "a worker's batch could not be mapped"
        why = f"{known} each need their own copy of what the main process has; a fork must be able to double it"
        return Cause("host_workers", 0.82, f"host memory: {what}", why, evidence)
    killed = "worker_killed" in kinds
    verdict = f"host memory: a data worker was killed{'' if killed else ' or crashed'}"
    why = (
        f"{known} each keep prefetched batches and, as Python counts references, copy the dataset's lists page by page"
    )
    return Cause("host_workers", 0.8 if killed else 0.55, verdict, why, evidence)


def _suspect_workers(facts: Facts, failure: Failure) -> Iterator[Cause]:
    count = facts.setup.workers
    frame = places.find_frame(failure, places.IN_A_WORKER)
    if frame is not None and failure.family in ("array", "cpu"):
        refused = text(failure.requested) if failure.requested is not None else "memory"
        yield Cause(
            "host_workers",
            0.62,
            f"host memory: a data worker was refused {refused}",
            f"it failed in {frame.place}; {_count_workers(facts)} share the machine's RAM, so the one that asks last "
            "fails",
            (quote_line(failure), f"frame {frame.place}"),
        )
    elif count and count >= MANY and failure.family in ("kernel", "exit", "cluster"):
        yield Cause(
            "host_workers",
            0.57,
            f"host memory: {count} data workers, and the process was killed",
            "each worker keeps prefetched batches and its own copy of the dataset's lists",
            (quote_line(failure),),
        )
