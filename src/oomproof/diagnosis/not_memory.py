"""Errors that end a training and have nothing to do with memory, and what to look at instead."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import quote
from oomproof.diagnosis.patterns import Pattern, any_of

KINDS: Sequence[tuple[str, Pattern, str, str]] = tuple(
    (kind, Pattern(pattern), what, step)
    for kind, pattern, what, step in (
        (
            "disk_full",
            r"No space left on device|PytorchStreamWriter failed|Disk quota exceeded|Errno 28\]"
            r"|Errno 122\]|ENOSPC|There is not enough space on the disk",
            "the disk is full",
            "df -h . ; make room or write checkpoints elsewhere",
        ),
        (
            "cuda_assert",
            r"device-side assert(?!ions)|Assertion `.*` failed|CUDA error: assert|ScatterGatherKernel|nll_loss.*assert",
            "a CUDA assertion failed: nearly always a class label or an index out of range",
            "CUDA_LAUNCH_BLOCKING=1 python train.py ; then compare the largest label with the number of classes",
        ),
        (
            "illegal_access",
            r"illegal memory access|cudaErrorIllegalAddress|misaligned address|CUDA error: an illegal"
            r"|unspecified launch failure|CUDA error: invalid (?:device|argument)",
            "a CUDA kernel read where it must not; that is a bug or a broken extension, not a lack of memory",
            "CUDA_LAUNCH_BLOCKING=1 python train.py ; the traceback then names the operation",
        ),
        (
            "nccl",
            r"NCCL (?:WARN|error|timeout)|ncclSystemError|ncclInternalError"
            r"|Watchdog caught collective|collective operation timeout|ProcessGroupNCCL.*(?:time"
            r"|abort)|Connection reset by peer|torch\.distributed\.DistBackendError",
            "the processes lost each other (NCCL)",
            "look at the log of the rank that stopped first; NCCL_DEBUG=INFO shows which",
        ),
        (
            "time_limit",
            r"DUE TO TIME LIMIT|DUE TO PREEMPTION|TERM_RUNLIMIT|walltime .* exceeded"
            r"|CANCELLED AT .* DUE TO|DEADLINE_EXCEEDED",
            "the batch system ended the job: time or preemption",
            "ask for more time (#SBATCH --time=...), and resume from the last checkpoint",
        ),
        (
            "open_files",
            r"Too many open files|received 0 items of ancdata|Errno 24\]",
            "the limit on open files was reached",
            'ulimit -n 65535 ; or torch.multiprocessing.set_sharing_strategy("file_system")',
        ),
        (
            "threads",
            r"can't start new thread|pthread_create failed|Resource temporarily unavailable",
            "the limit on processes or threads was reached",
            "ulimit -u ; OMP_NUM_THREADS=1, and fewer data workers",
        ),
        (
            "hardware",
            r"ECC error|NVRM: Xid|fallen off the bus|GPU is lost",
            "the GPU itself reports a fault",
            "nvidia-smi -q -d ECC ; dmesg -T | grep -i xid ; reset the card or take another",
        ),
        (
            "submission",
            r"Unable to allocate resources|[Jj]ob submission failed|Requested node configuration is not available",
            "the batch system did not start the job",
            "sinfo ; ask for what a node of that partition has",
        ),
        (
            "driver",
            r"Driver/library version mismatch|unsupported display driver|no kernel image is available"
            r"|driver version is insufficient|driver on your system is too old"
            r"|Unexpected error from cudaGetDeviceCount"
            r"|CUDA driver initialization failed|No CUDA GPUs are available|invalid device ordinal"
            r"|libcuda|CUDA unknown error|is_available\(\) is False"
            r"|not compiled with CUDA enabled|Found no NVIDIA driver|CUDA_ERROR_NO_DEVICE",
            "CUDA, the driver and the framework do not go together",
            "nvidia-smi ; python -m torch.utils.collect_env",
        ),
        (
            "busy",
            r"CUDA-capable device\(s\) is/are busy or unavailable|CUDA_ERROR_DEVICE_UNAVAILABLE",
            "another process has the GPU for itself, or the driver does not answer",
            "nvidia-smi -q -d COMPUTE shows whether it is in exclusive mode ; nvidia-smi shows who uses it",
        ),
        (
            "port",
            r"EADDRINUSE|[Aa]ddress already in use",
            "another process listens on the port that the processes of this training were to meet at",
            "torchrun --master_port 29501 ..., or end the earlier run that still holds the port",
        ),
        (
            "version",
            r"major and minor version needs to match|Cannot find a working triton|TritonMissing"
            r"|but source was compiled with|VERSION_MISMATCH",
            "libraries of different versions were put together",
            "install the version that the message names, for example: pip install --upgrade nvidia-cudnn-cu12",
        ),
        (
            "usage",
            r"error: (?:unrecognized arguments|the following arguments are required|argument )|^usage: ",
            "the command line is wrong",
            "correct the argument that the message names",
        ),
        (
            "segfault",
            r"Segmentation fault|Memory fault|SIGSEGV|signal 11|exit ?code\W{0,6}(?:139|-11|-1073741819)\b|core dumped",
            "the process crashed (a segmentation fault or an abort)",
            "python -X faulthandler train.py ; the line shows which library crashed",
        ),
        (
            "interrupt",
            r"KeyboardInterrupt|^(?:\^C)+(?:\s|$|Traceback|Terminat|Killed)|[\]\s]\^C$|Interrupted by user",
            "somebody stopped it (Ctrl-C)",
            "start it again; no memory was short",
        ),
        (
            "hangup",
            r"SIGHUP|got signal: 1\b|Received 1 death signal",
            "the terminal it ran in was closed (SIGHUP)",
            "start it in tmux or with nohup, and resume from the last checkpoint",
        ),
        (
            "terminated",
            r"SIGTERM|signal 15|got signal: 15|Received 15 death signal|killed by signal: Terminated"
            r"|exit ?code\W{0,6}(?:143|-15)\b|DUE TO"
            r"|^(?:\[\d+\]\s*[+-]?\s*(?:\d+\s+)?)?Terminated\b|CANCELLED AT",
            "somebody or something asked it to stop (SIGTERM)",
            "ask the scheduler or the supervisor why it sent the signal",
        ),
        (
            "missing",
            r"FileNotFoundError|No such file or directory|ModuleNotFoundError|ImportError"
            r"|ConfigFileNotFound|NotFoundError",
            "a file or a module is missing",
            "correct the path or install the module that the message names",
        ),
        (
            "nan",
            r"(?:[Ll]oss|gradient|Gradient)\w*[^\n]{0,40}\b(?:nan|NaN|inf)\b|FloatingPointError"
            r"|NaN detected|became infinite or NaN|Loss is nan|non-finite loss",
            "the loss became NaN or infinite",
            "lower the learning rate or warm it up, clip gradients, and check boxes of zero size",
        ),
    )
)
ADVICE = {kind: (what, step) for kind, _, what, step in KINDS}
_EXCEPTION = Pattern(
    r"^\s*(?:(?:[\w.]{1,80}\.)?([A-Z]\w{0,60}(?:Error|Exception|Interrupt|Exit|Failure|Failed(?=:)))\b"
    r"|(?:[a-z_]\w{0,40}\.){0,8}(?:exceptions?|errors)\.([A-Z]\w{2,60})(?=: )"
    r"|(?:[a-z_]\w{0,40}\.){1,8}(error)(?=: ))"
)
_WEAK = {"nan", "terminated", "hangup"}
"""said in passing too; they count only where nothing stronger is there"""
_WARNED = Pattern(r"\b[WI] (?:tensorflow|external)/|failed call to cuInit")
"""TensorFlow goes on without a library or a GPU that it does not find"""
_ANY = any_of(
    r"rror",
    r"xception",
    r"space left",
    r"ssert",
    r"NCCL",
    r"nccl",
    r"DUE TO",
    r"ancdata",
    r"open files",
    r"CUDA",
    r"fault",
    r"SIG",
    r"signal",
    r"nterrupt",
    r"\^C",
    r"erminated",
    r"mismatch",
    r"EADDRINUSE",
    r"already in use",
    r"No such",
    r"nan",
    r"NaN",
    r"inf\b",
    r"walltime",
    r"Watchdog",
    r"reset by",
    r"thread",
    r"unavailable",
    r"Xid",
    r"the bus",
    r"is lost",
    r"allocate resources",
    r"submission",
    r"node configuration",
    r"^\s*[a-z_]\w*\.[\w.]+: ",
    r"quota",
    r"core dumped",
    r"exit ?code",
    r"ENOSPC",
    r"CANCELLED",
    r"RUNLIMIT",
    r"version",
    r"compiled",
    r"usage",
    r"Failed:",
    r"triton",
)


def errors(lines: Sequence[Line]) -> tuple[Failure, ...]:
    found: list[Failure] = []
    for at, line in enumerate(lines):
        text = line.text[:600]
        if not _ANY.search(text):
            continue
        kind = next((kind for kind, pattern, _, _ in KINDS if pattern.search(text)), "")
        exception = _EXCEPTION.match(text)
        if kind in _WEAK and not exception and re.search(r"warn", text, re.IGNORECASE):
            kind = ""
        if not kind and exception:
            kind = "exception"
        if kind:
            found.append(
                Failure(
                    family="error",
                    kind=kind,
                    where="",
                    line=line.number,
                    quote=quote(line),
                    at=at,
                    rank=line.rank,
                    fatal=exception is not None or not (kind in _WEAK or _WARNED.search(text)),
                    op=next(name for name in exception.groups() if name) if exception else "",
                )
            )
    return tuple(found[:50] + found[50:][-200:])
