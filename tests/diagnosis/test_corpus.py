"""Logs of every message family, era and cause, written for this test; the folder is the cause that must come first."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import oomproof
from oomproof.diagnosis.diagnosis import CAUSES, Diagnosis
from oomproof.diagnosis.gather import INFORMATION, gather
from oomproof.diagnosis.reading import keep_parts
from oomproof.report.explain import document
from thorough import thorough_but

CORPUS = Path(__file__).parent / "corpus"
LOGS = sorted(CORPUS.rglob("*.log"))
LOOK_ALIKES = [log for log in LOGS if log.parent.name in ("not_memory", "benign_warning")]
NUMBER = re.compile(r"\d")


def named(log: Path) -> str:
    return f"{log.parent.name}/{log.stem}"


@pytest.fixture(scope="module")
def found() -> dict[Path, Diagnosis]:
    return {log: oomproof.explain(log) for log in LOGS}


def test_the_cause_is_found(found: dict[Path, Diagnosis]) -> None:
    wrong = {
        named(log): [(cause.id, cause.confidence, cause.why) for cause in each.causes]
        for log, each in found.items()
        if each.cause != log.parent.name
    }
    assert not wrong


def test_three_lines_that_tell_something(found: dict[Path, Diagnosis]) -> None:
    assert not [(named(log), fault) for log, each in found.items() for fault in _faults(each)]


def _faults(found: Diagnosis) -> Iterator[str]:
    for line in (found.verdict, found.why, found.next):
        if line != " ".join(line.split()) or not 10 < len(line) < 420:
            yield f"not one line of some words without gaps: {line}"
        if "None" in line or "{half}" in line:
            yield f"a figure is missing: {line}"
    if not found.verdict.startswith(("device memory", "host memory", "/dev/shm", "not a ", "cannot tell")):
        yield f"a verdict of no kind: {found.verdict}"
    sure = [cause.confidence for cause in found.causes]
    if sure != sorted(sure, reverse=True) or not all(0 <= each <= 1 for each in sure):
        yield f"confidence from 1 down to 0: {sure}"
    if not {cause.id for cause in found.causes} <= set(CAUSES):
        yield f"an unknown cause: {found.causes}"
    if found.is_memory and not NUMBER.search((*found.causes[0].evidence, "")[0]):
        yield f"evidence without a figure: {found.causes[0].evidence}"


def test_the_corpus_is_as_wide_as_promised() -> None:
    assert {log.parent.name for log in LOGS} == set(CAUSES)
    assert len(LOGS) - len(LOOK_ALIKES) >= 60
    assert len(LOOK_ALIKES) >= 15


def test_every_kind_of_every_family_is_in_the_corpus() -> None:
    seen = {
        (failure.family, failure.kind) for log in LOGS for failure in gather(keep_parts([log.read_bytes()])).failures
    }
    assert seen >= set(INFORMATION)
    assert {family for family, _ in seen} == {family for family, _ in INFORMATION} | {"harmless"}


def test_look_alikes_are_not_called_memory(found: dict[Path, Diagnosis]) -> None:
    assert not [named(log) for log in LOOK_ALIKES if found[log].is_memory]


def _in_docker(text: str) -> str:
    return "\n".join(
        json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2024-05-01T10:00:00.1Z"})
        for line in text.split("\n")
    )


DRESSES = {
    "crlf": lambda text: text.replace("\r\n", "\n").replace("\n", "\r\n"),
    "kubernetes": lambda text: "".join(
        f"2024-05-01T10:00:00.123456789Z stderr F {line}\n" for line in text.split("\n")
    ),
    "docker": _in_docker,
    "colour": lambda text: "".join(f"\x1b[1;31m{line}\x1b[0m\n" for line in text.split("\n")),
    "clock": lambda text: "".join(f"[2024-05-01 10:00:00,123] {line}\n" for line in text.split("\n")),
    "rank": lambda text: "".join(f"[rank0]: {line}\n" for line in text.split("\n")),
    "quoted": lambda text: "".join(f"> {line}\n" for line in text.split("\n")),
    "no last newline": lambda text: text.rstrip("\n"),
    "much before": lambda text: "loading configuration\n" * 300 + text,
}


@pytest.mark.parametrize("dress", thorough_but([each for each in DRESSES if each != "much before"], DRESSES))
def test_what_collectors_put_around_lines_changes_nothing(dress: str) -> None:
    wrong = []
    for log in LOGS:
        text = log.read_text()
        if dress == "much before" and log.parent.name == "unknown":
            continue
        found = oomproof.explain(DRESSES[dress](text).encode())
        if found.cause != log.parent.name:
            wrong.append((named(log), found.cause))
    assert wrong == []


def test_powershell_writes_utf_16() -> None:
    for log in LOGS:
        text = log.read_text()
        assert oomproof.explain(b"\xff\xfe" + text.encode("utf-16-le")).cause == log.parent.name, named(log)


def test_a_terminal_of_80_columns() -> None:
    """Only the message itself: a traceback whose lines are cut is lost, as in any terminal."""
    for log in LOGS:
        message = log.read_text().strip().splitlines()[-1]
        if "Tried to allocate" in message and log.parent.name == "other_process":
            wrapped = "\n".join(message[at : at + 80] for at in range(0, len(message), 80))
            assert oomproof.explain(wrapped + "\n").cause == "other_process", named(log)


def test_facts_are_json_with_bytes_as_integers() -> None:
    for log in LOGS:
        facts = json.loads(json.dumps(document(oomproof.explain(log)), allow_nan=False))["facts"]
        for name in ("requested", "total", "free", "allocated", "reserved", "process", "limit"):
            assert facts[name] is None or isinstance(facts[name], int), (named(log), name)


def test_compressed_logs_are_named(tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(b"Killed\n"))
    with pytest.raises(oomproof.InputError, match="zcat"):
        oomproof.explain(path)
