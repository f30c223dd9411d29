"""Data loaders: bus errors and /dev/shm, killed workers, fork and mmap without memory, Windows' paging file."""

from __future__ import annotations

from collections.abc import Sequence

from oomproof.diagnosis import frames
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import block, join_words, quote
from oomproof.diagnosis.patterns import Pattern, any_of

TRIGGER = any_of(
    r"bus error",
    r"Bus error",
    r"insufficient shared memory",
    r"\bshm\b[^\n]{0,60}(?:too small|full|increase|No space)",
    r"unable to (?:open|write to|resize|allocate) [^\n]{0,40}(?:shared memory|</torch_)",
    r"unable to mmap",
    r"DataLoader worker \(pid",
    r"Errno 12\]",
    r"Errno 28\]",
    r"No space left on device",
    r"paging file is too small",
    r"WinError (?:1455|8)\b",
    r"Couldn't open shared file mapping",
    r"Error while creating shared memory segment",
    r"/dev/shm[^\n]{0,80}(?:space|full|fail)",
    r"errno=28",
    r"exited unexpectedly",
    r"background workers are no longer alive",  # batchgenerators, as in nnU-Net
    r"BrokenProcessPool: ",
    r"TerminatedWorkerError: ",  # joblib
    r"error code: <1455>",
    r"exit ?(?:code|status)?\W{0,6}(?:135|-7)\b",
    r"(?:return ?code|code|status)\W{1,5}(?:135|-7)\b",
)
_SHM = any_of(
    r"[Bb]us error",
    r"shared memory",
    r"\(shm\)",
    r"/dev/shm",
    r"</torch_[^>]*>[^\n]{0,40}(?:No space|\(28\))",
    r"unable to (?:write to|resize) file </torch_",
    r"creating shared memory segment",
)
_MAP = Pattern(r"unable to mmap (\d{1,20}) bytes from file </?torch_\d+_\d+(?:_(\d{1,7}))?")
_KILLED = Pattern(r"killed by signal: (?:Killed|SIGKILL|9\b|Bus)|workers are \{SIGKILL")
_OTHER_SIGNAL = Pattern(r"killed by signal: (?!Killed|SIGKILL|Bus)|Segmentation|SIGSEGV|SIGABRT|Aborted|Terminated\b")
_POOL = Pattern(r"no longer alive|BrokenProcessPool|TerminatedWorkerError")
_BUS_CODE = Pattern(r"(?:code|status|exit)\W{0,6}(135|-7)\b")
_OF_A_FILE = Pattern(r"Errno 12\][^:\n]{1,40}: ['\"]")
_SEMAPHORE = Pattern(
    r"synchronize\.py|_multiprocessing\.SemLock|SemLock|multiprocessing/heap\.py|shared_memory\.py|/dev/shm"
)


def read(lines: Sequence[Line], at: int) -> Failure | None:
    line = lines[at]
    text = line.text
    stack = frames.before(lines, at)
    kind, where = _kind(text, stack_text(lines, at))
    if _POOL.search(text):
        kind, where = _end_of_a_worker(join_words(block(lines, at, ahead=3)), ""), "host"
    if not kind:
        return None
    mapped = _MAP.search(text)
    return Failure(
        family="loader",
        kind=kind,
        where=where,
        line=line.number,
        quote=quote(line),
        at=at,
        rank=line.rank,
        requested=int(mapped[1]) if mapped else None,
        op="maps" if mapped and mapped[2] and int(mapped[2]) > 50_000 else "",
        frames=stack,
    )


def stack_text(lines: Sequence[Line], at: int) -> str:
    return " ".join(line.text for line in lines[max(0, at - 12) : at + 1] if line.rank == lines[at].rank)


def _kind(text: str, around: str) -> tuple[str, str]:
    """(kind, whose memory); empty where it is a limit or an end of another kind."""
    if "Too many open files" in text:
        kind = ""
    elif "1455" in text or "paging file" in text:
        kind = "paging_file"
    elif "WinError 8" in text or "Errno 12" in text:
        kind = "" if _OF_A_FILE.search(text) else "fork"
    elif "unable to mmap" in text:
        kind = "mmap" if "(12)" in text or "allocate" in text else "shm"
    elif "Errno 28" in text or "No space left" in text or "errno=28" in text:
        kind = "shm" if _SHM.search(text) or _SEMAPHORE.search(around) else ""
    elif "DataLoader worker" in text or "exited unexpectedly" in text:
        kind = _end_of_a_worker(text, around)
    else:
        kind = "shm" if _SHM.search(text) else "bus" if _BUS_CODE.search(text) else ""
    return kind, "shm" if kind in ("shm", "bus") else "host"


def _end_of_a_worker(text: str, around: str) -> str:
    if "bus error" in text.lower() or "shared memory" in around.lower():
        return "shm"
    if _OTHER_SIGNAL.search(text):
        return ""
    return "worker_killed" if _KILLED.search(text) else "worker_gone"
