"""Linux's OOM killer, for the whole machine or for a control group, and systemd-oomd and earlyoom."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oomproof.diagnosis.amounts import amount
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import quote
from oomproof.diagnosis.patterns import Pattern, any_of

TRIGGER = any_of(
    r"Out of memory: Kill",
    r"Memory cgroup out of memory",
    r"Killed process \d+",
    r"oom-kill:constraint",
    r"memory: usage \d+kB, limit",
    r"killed as a result of limit of",
    r"systemd-oomd",
    r"earlyoom",
    r"Low memory! at or below SIGTERM",
    r"low-memory-killer",
    r"invoked oom-killer",
)
_VICTIM = Pattern(r"Kill(?:ed)? process (\d{1,10}),?\s*(?:\((.{1,40}?)\)|UID)")
_TASK = Pattern(r"task=([^,\s]{1,40}),pid=(\d{1,10})")
_RSS = Pattern(r"(anon-rss|file-rss|shmem-rss):\s*([\d,]{1,20}kB)")
_LIMIT = Pattern(r"memory: usage (\d{1,20}kB), limit (\d{1,20}kB)")
_USED = Pattern(r"memory used \((\d{1,20})\) / total \((\d{1,20})\)")  # systemd-oomd
_EARLY = Pattern(r'process (\d{1,10})(?: uid \d+)? "(.{1,40}?)".{0,60}VmRSS (\d{1,9} MiB)')  # earlyoom
_SWAP = Pattern(r"Free swap\s*=\s*(\d{1,20}kB)")
_RAM = Pattern(r"(\d{1,12}) pages RAM")
_ROW = Pattern(r"\[\s*(\d{1,10})\]\s+\d+\s+\d+\s+\d+\s+(\d{1,12})\s+(?:\d+\s+)+(?:-?\d+\s+)?([\w.:/()-]{1,40})\s*$")
_UNLIMITED = 1 << 50
NEAR = 400
PAGE = 4096


def read(lines: Sequence[Line], at: int) -> Failure | None:
    """One Failure for the whole dump: its lines stand together."""
    line = lines[at]
    near = [each for each in lines[max(0, at - NEAR) : at + 40] if abs(each.number - line.number) < NEAR]
    texts = [each.text for each in near]
    together = "\n".join(texts)
    victim, pid = _victim(line.text, together)
    cgroup = bool(
        re.search(
            r"Memory cgroup out of memory|CONSTRAINT_MEMCG|mem_cgroup_out_of_memory"
            r"|as a result of limit of|memory: usage \d+kB, limit|[Cc]group mem(?:ory)? limit exceeded",
            together,
        )
    )
    limit = None
    for found in _LIMIT.finditer(together):
        limit = amount(found[2])
    if limit is not None and limit > _UNLIMITED:
        limit = None
    # Of the many lines of a dump, the one that names the victim tells most.
    told = next((each for each in near if each.number >= line.number and _VICTIM.search(each.text)), line)
    # What the reaper says comes after the kill, when next to nothing is left.
    sizes = next((text for text in (told.text, *texts) if _RSS.search(text) and "oom_reaper" not in text), "")
    own = {name: amount(size) or 0 for name, size in _RSS.findall(sizes)}
    swap, pages = _SWAP.search(together), _RAM.search(together)
    count, held = _helpers(texts, victim, pid)
    used, early = _USED.search(together), _EARLY.search(together)
    return Failure(
        family="kernel",
        kind="cgroup" if cgroup else "machine",
        where="host",
        line=told.number,
        quote=quote(told),
        at=at,
        total=int(pages[1]) * PAGE if pages else int(used[2]) if used else None,
        process=own.get("anon-rss", 0) + own.get("shmem-rss", 0) or (amount(early[3]) if early else None),
        op=next((name for name in ("systemd-oomd", "earlyoom") if name in together), ""),
        limit=limit if cgroup else None,
        swap_free=amount(swap[1]) if swap else None,
        victim=victim or (early[2] if early else ""),
        helpers=(count, held),
        exit_code=137,
    )


def _victim(text: str, together: str) -> tuple[str, int]:
    found = _VICTIM.search(text) or _VICTIM.search(together)
    if found and found[2]:
        return found[2], int(found[1])
    task = _TASK.search(together)
    return (task[1], int(task[2])) if task else ("", 0)


def _helpers(texts: Sequence[str], victim: str, pid: int) -> tuple[int, int]:
    """Processes of the victim's name beside it, from the table of tasks: the workers of a data loader."""
    count = held = 0
    seen: set[str] = set()
    for text in texts:
        row = _ROW.search(text)
        if row and row[1] not in seen and victim and row[3] == victim and int(row[1]) != pid:
            seen.add(row[1])
            count, held = count + 1, held + int(row[2]) * PAGE
    return count, held
