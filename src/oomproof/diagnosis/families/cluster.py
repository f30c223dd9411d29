"""Batch systems, Kubernetes, Docker, notebooks and Ray: a limit on memory, said in their words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oomproof.diagnosis.amounts import SIZE, amount
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import join_words, quote
from oomproof.diagnosis.patterns import Pattern, any_of

TRIGGER = any_of(
    r"OOMKilled",
    r"oom[-_]kill event",
    r"OUT_OF_ME",
    r": Out Of Memory",
    r"[Ee]xceeded (?:job |step )?memory limit",
    r"OOM Killed",
    r"cgroup out-of-memory handler",
    r"exceeded limit [\d.]+ ?[kmgKMG]?b",
    r"TERM_MEMLIMIT",
    r"memory usage limit",
    r"low on resource: memory",
    r"MemoryPressure",
    r"Container killed due to memory",
    r"session crashed after using all available RAM",
    r"tried to allocate more memory than is available",
    r"used too much memory",
    r"running low on memory",
    r"ray\.exceptions\.OutOfMemoryError",
    r"node running low",
    r"beyond (?:the )?'?(?:physical|virtual) memory'? limit",
    r"exceeding memory limits",
    r"job killed: (?:cgroup )?mem",
    r"MEMORY LIMIT EXCEEDED",
    r"memory limit exceeded",
    r"killed by the OOM killer",
    r"ran out-of-memory and exited with",  # Vertex AI
    r"use an instance type with more memory",  # SageMaker
    r"over (?:cgroup )?memory limit of \d",  # HTCondor
)
_OVER = any_of(
    r"\(?(\d[\d.]{0,18})\s*([KMGT]?i?B?)?\s*>\s*(\d[\d.]{0,18})\s*([KMGT]?i?B?)?\)?",
    r"mem (\d{1,18})kb exceeded limit (\d{1,18})kb",
    rf"using {SIZE},? (?:which exceeds its request of|request is) {SIZE}",
    flags=re.IGNORECASE,
)
_LIMIT = Pattern(
    rf"(?:limits?|Limits|--mem(?:ory)?|Memory Requested|memory)\S{{0,4}}[ =:]+(?:memory:\s*)?{SIZE}", re.IGNORECASE
)
_LIMIT_IN_WORDS = Pattern(r"memory limit of (\d{1,9}(?:\.\d{1,3})? ?(?:[KMGT]i?B|megabytes))", re.IGNORECASE)
_HEADING = Pattern(r"^\s*[A-Za-z][\w ]{1,30}:\s*$")
_EXIT = Pattern(r"[Ee]xit [Cc]ode:?\s*(-?\d{1,3})")
_NODE = Pattern(r"low on resource: memory|running low on memory|node running low|MemoryPressure|ray\.exceptions")
_NODE_USE = Pattern(rf"was {SIZE} / {SIZE}")
_NOTEBOOK = Pattern(r"session crashed|tried to allocate more memory than|used too much memory")
NEAR = 30


def read(lines: Sequence[Line], at: int) -> Failure | None:
    line = lines[at]
    near = [each.text for each in lines[max(0, at - NEAR) : at + 10] if abs(each.number - line.number) < NEAR]
    if re.search(r'OOMKilled"?[:=] ?"?false', line.text, re.IGNORECASE):
        return None
    over = _OVER.search(line.text)
    used = limit = None
    if over and over[1]:
        used, limit = _kib(over[1], over[2]), _kib(over[3], over[4])
    elif over and over[5]:
        used, limit = int(over[5]) << 10, int(over[6]) << 10
    elif over and over[7]:
        used, limit = amount(over[7]), amount(over[8])
    if limit is None:
        said = _find_limits(near)
        limit = amount(said[-1]) if said else None
    node = _NODE_USE.search(join_words(near))
    code = _EXIT.search(join_words(near))
    return Failure(
        family="cluster",
        kind=_kind(line.text),
        where="host",
        line=line.number,
        quote=quote(line),
        at=at,
        rank=line.rank,
        total=amount(node[2]) if node else None,
        process=used,
        limit=limit if _kind(line.text) != "node" else None,
        exit_code=int(code[1]) if code else None,
    )


def _find_limits(near: Sequence[str]) -> list[str]:
    """What is said to be the limit; Kubernetes lists what a container asked for in a block of its own below."""
    found: list[str] = []
    asked_for = False
    for text in near:
        if _HEADING.match(text):
            asked_for = "equests" in text
        if not asked_for and "equests" not in text and (limit := _LIMIT.search(text) or _LIMIT_IN_WORDS.search(text)):
            found.append(limit[1])
    return found


def _kind(text: str) -> str:
    if _NOTEBOOK.search(text):
        return "notebook"
    return "node" if _NODE.search(text) else "limit"


def _kib(number: str, unit: str | None) -> int | None:
    """SLURM's «(33555000 > 33554432)» is in KiB."""
    return amount(f"{number}{unit}" if unit else f"{number}K")
