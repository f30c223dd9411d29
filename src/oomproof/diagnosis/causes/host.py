"""Host memory as a whole: /dev/shm, the limit of a container or a job, a machine that is too small."""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.diagnosis.amounts import text
from oomproof.diagnosis.causes import columns, moment, places
from oomproof.diagnosis.causes.moment import quote_line
from oomproof.diagnosis.diagnosis import Cause
from oomproof.diagnosis.facts import Facts
from oomproof.diagnosis.patterns import Pattern

TRAINING = Pattern(r"python|pt_main|pt_data|torch|ray|java|node|trainer")
"""names of processes that may be the training itself"""

_OF_NCCL = Pattern(r"NCCL|/dev/shm/nccl|shared memory segment")

JOBS = ("PBS", "LSF", "request_memory", "instance type", "replica ")
"""signs of batch systems other than SLURM, and of training jobs in a cloud"""

LITTLE = 64 << 20
"""bytes: less than Python with NumPy takes"""


def shm_too_small(facts: Facts) -> Iterator[Cause]:
    found = [each for each in facts.failures if each.family == "loader" and each.kind in ("shm", "bus")]
    if facts.main is None or facts.main.where == "device" or not found:
        return
    if facts.main.kind == "bus":
        yield Cause(
            "shm_too_small",
            0.6,
            "/dev/shm is too small, most likely: the process ended with signal 7, a bus error",
            "data workers and NCCL share memory in /dev/shm, and a write that finds no room ends so; Docker gives "
            "64 MiB of it unless told otherwise",
            (quote_line(facts.main),),
        )
        return
    if _OF_NCCL.search(found[0].quote):
        yield Cause(
            "shm_too_small",
            0.93,
            "/dev/shm is too small for the segments through which NCCL's processes exchange gradients",
            "every pair of processes on a machine maps some MiB there; Docker gives 64 MiB of it unless told otherwise",
            tuple(quote_line(each) for each in found[:3]),
            "docker run --shm-size=8g (or --ipc=host) in a new container ; df -h /dev/shm ; or NCCL_SHM_DISABLE=1, "
            "which is slower",
        )
        return
    workers = facts.setup.workers
    many = f"{workers} workers" if workers else "the workers"
    yield Cause(
        "shm_too_small",
        0.93,
        "/dev/shm is too small for the batches that data workers pass on",
        f"{many} hand every batch over in /dev/shm, and a write there failed; Docker gives 64 MiB of "
        "it unless told otherwise. The line in the traceback is innocent",
        tuple(quote_line(each) for each in found[:3]),
    )


def container_limit(facts: Facts) -> Iterator[Cause]:
    failure = facts.main
    if failure is None or failure.where != "host":
        return
    groups = [
        each
        for each in facts.failures
        if (each.family, each.kind) == ("kernel", "cgroup") or (each.family == "cluster" and each.kind != "node")
    ]
    if not groups:
        return
    best = max(groups, key=lambda each: (each.limit is not None, each.process is not None))
    kubernetes = "kubernetes" in facts.setup.found
    job = "slurm" in facts.setup.found or any(sign in each.quote for each in groups for sign in JOBS)
    what = (
        "the pod's"
        if kubernetes
        else "the job's"
        if job
        else "the notebook's"
        if best.kind == "notebook"
        else "the container's"
    )
    limit = f" of {text(best.limit)}" if best.limit else ""
    used = f"the killed process held {text(best.process)}" if best.process else "the machine itself may have more"
    count, held = best.helpers
    table = f"; {count} more processes of the same name held {text(held)}" if count else ""
    yield Cause(
        "container_limit",
        0.85 if best.limit or best.family == "kernel" else 0.8,
        f"host memory: {what} memory limit{limit} was reached, and the training was killed",
        f"{used}{table}; the limit counts all processes in it together, and what they keep in /dev/shm",
        tuple(quote_line(each) for each in groups[:3]),
    )


def too_small(facts: Facts) -> Iterator[Cause]:
    failure = facts.main
    if failure is None or failure.where != "host":
        return
    ours = not failure.victim or TRAINING.search(failure.victim)
    held = f", which held {text(failure.process)}" if failure.process else ""
    total = f" ({text(failure.total)})" if failure.total else ""
    if failure.family == "kernel" or failure.kind == "node":
        killer = failure.op or ("the kernel" if failure.family == "kernel" else "its supervisor")
        sentence = (
            f"host memory: the machine{total} ran out, and {killer} killed {failure.victim or 'the training'}{held}"
        )
        why = f"no limit of a container is named: RAM {'and swap were' if failure.swap_free == 0 else 'was'} full" + (
            ""
            if ours
            else f"; {failure.victim} was killed, which is not the training, but the training may be what filled it"
        )
        if ours and 0 < (failure.process or 0) < LITTLE:
            why += ", and not by the process that was killed: something else fills it"
        yield Cause("host_too_small", 0.72, sentence, why, (quote_line(failure),))
    elif failure.family == "exit":
        code = f" (exit code {failure.exit_code})" if str(failure.exit_code) in failure.quote else ""
        sentence = f"host memory, most likely: the process was killed with signal 9{code} without a word"
        why = (
            "nothing else in the log explains the end; the kernel's OOM killer does "
            "just that (so does a person with kill -9)"
        )
        level = [course for course in columns.describe_courses(facts, failure, "host") if course.kind == "level"]
        if level:
            why += f"; {columns.describe_course(level[0])}: if it was RAM, it was a sudden rise or another process"
        loading = moment.last(facts, failure)
        if loading is not None and loading.doing == "resume" and not moment.find_training_steps(facts, failure):
            sentence += ", while it loaded a checkpoint"
            why = (
                f"line {loading.line} loads weights, which pass through RAM whole, once in every process; the kernel's "
                "OOM killer ends that so (and so does a person with kill -9)"
            )
            advice = (
                "from_pretrained(..., low_cpu_mem_usage=True), torch.load(path, mmap=True), or fewer processes ; dmesg "
                "-T | grep -i 'killed process' confirms it"
            )
            yield Cause(
                "host_too_small",
                0.56,
                sentence,
                why,
                (quote_line(failure), f"line {loading.line}: {loading.text}"),
                advice,
            )
            return
        yield Cause("host_too_small", 0.52, sentence, why, (quote_line(failure),))
    elif failure.kind == "primitive":
        yield Cause(
            "host_too_small",
            0.45,
            "host memory, most likely: oneDNN, which computes on the CPU, got no memory for a kernel",
            "it names no reason; a limit on memory (ulimit, a container) or full RAM is the usual one, and a kernel "
            "that it does not have for this shape or type the other",
            (quote_line(failure),),
        )
    elif failure.kind == "pinned":
        asked = f"{text(failure.requested)} of " if failure.requested is not None else ""
        yield Cause(
            "host_too_small",
            0.62,
            f"host memory, most likely: {asked}page-locked RAM for a batch {'were' if asked else 'was'} refused",
            "the thread that pins batches failed; how much may be pinned is less than the RAM, under WSL by far; a GPU "
            "that is full can answer the same",
            (quote_line(failure),),
            "DataLoader(pin_memory=False) ; free -g and nvidia-smi while it runs show which of the two is full",
        )
    elif failure.family in ("array", "cpu", "tensorflow", "other"):
        asked = text(failure.requested) if failure.requested is not None else "an allocation"
        place = places.own(failure)
        at = f" at {place}" if place else ""
        yield Cause(
            "host_too_small",
            0.5,
            f"host memory: {asked} refused{at}: RAM (not GPU memory) is full",
            "the request is not absurd; what the machine has beside it was taken",
            (quote_line(failure),),
        )
