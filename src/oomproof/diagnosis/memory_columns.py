"""Memory that a log itself reports, in whatever form, as series.

`memory: 23107`, `max_mem: 5102M`, `gpu 8.91G`, `alloc_after_step 4.109 GiB`, `RAM 43 %`, `"cuda_memory_mb": 3120`,
`cuda:0 4123/8192 MB`, and columns under a header such as `rss(MB)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from oomproof.diagnosis.amounts import amount
from oomproof.diagnosis.facts import ColumnReading, Line, ProgressLine, Trend

LEAST, MOST = 4, 1000
"""figures that make a series, and how many of them are kept"""
_UNIT = r"(?:[KMGTkmgt]i?[Bb]|[KMGTkmgt]|[Bb]ytes|B|%)"
_READING = re.compile(
    # Up to three words, perhaps with a unit in brackets, then a number, perhaps with its unit.
    r"(?P<key>(?:cuda|gpu)[: ]?\d{1,2}(?=[ :=]{1,3}\d)|[A-Za-z][\w./-]{0,40}(?: [A-Za-z][\w.]{0,16}){0,2}(?:\s?[(\[]"
    + _UNIT
    + r"[)\]])?(?:\(\)\.\w{1,16})?)(?:\(\))?[\"']?\s{0,6}[:=|]?\s{0,8}[\"']?"
    r"(?P<value>\d[\d,]{0,14}(?:\.\d{1,12})?(?:e\+?\d{1,2})?)"
    rf"(?:\s?(?:{_UNIT})?\s?/\s?\d[\d,.]{{0,14}}\s?(?P<unit_of_all>{_UNIT})(?![A-Za-z/])"  # 4123/8192 MB
    rf"|\s?(?P<unit>{_UNIT})(?![A-Za-z_])|(?![\d/%A-Za-z.]))",
    re.IGNORECASE,
)
_BEHIND = re.compile(
    r"(?<![\d.,/])(?P<value>\d{1,6}(?:[.,]\d{1,4})?)\s?(?P<unit>[KMGT]i?B|[MG])(?: of)? "
    r"(?P<key>(?:gpu |cuda |peak |max |host |cpu )?(?:alloc\w{0,6}|reserved|re?sv|v?ram|mem(?:ory)?|rss|gpu|cuda))\b",
    re.IGNORECASE,
)
"""the figure before its name: `4.02 GiB alloc`; looked for where no name stands before a figure with a unit"""
_CELL = re.compile(rf"(?P<value>\d[\d,]{{0,14}}(?:\.\d{{1,6}})?)\s?(?P<unit>{_UNIT})?", re.IGNORECASE)
_WORDS = re.compile(r"[A-Za-z]+")
_TWO_IN_ONE = re.compile(r"\b(gpu|cuda|cpu)(?=mem|ram|alloc)", re.IGNORECASE)
"""GPUmem"""
_DECIMAL_COMMA = re.compile(r"\d{1,4},\d{1,2}")
"""9,10 GB, as much of Europe writes it; thousands are three digits"""
BYTES = 1e8
"""figures from here on count bytes, whatever stands beside them"""
_TRANSLATED = (
    (re.compile(r"(?:GPU ?)?(?:显存|顯存)(?:占用|使用)?[量率]?\s?[:：]?"), " gpu mem: "),
    (re.compile(r"(?:CPU ?)?(?:内存|記憶體)(?:占用|使用)?[量率]?\s?[:：]?"), " ram: "),
    (re.compile(r"\b(\w{0,20}(?:mem|ram|gpu|cuda)\w{0,20})[\"']: ?\{[\"']", re.IGNORECASE), r"\1_"),
)
"""names in Chinese, and objects within an object: `"vram": {"used_gb": 9.1`"""
_UNIT_IN_KEY = re.compile(r"(?:^|[_.(\[])([KMGT]i?B|bytes|%)[)\]]?$", re.IGNORECASE)
_UNIT_FIRST = re.compile(r"([KMGT]i?B)_", re.IGNORECASE)
_SENTENCE = re.compile(
    # `Memory usage at the end of the epoch: 12781158400`, `GPU Total Peak Memory consumed in the epoch (max): 9120`
    r"(?P<name>(?:\b(?:[CG]PU|CUDA|host|system|total|peak|max|virtual) ){0,4}\b(?:mem(?:ory)?|RAM|svmem)"
    r"(?: (?:usage|consumed)[^:=\d]{1,40}[:=]|[:(]\s{0,3}(?:[\w=.,]{1,40} ){0,4}(?:used|current)\b\s?[:=]?))"
    rf"\s{{0,8}}(?P<value>\d[\d,]{{0,14}}(?:\.\d{{1,6}})?)\s?(?P<unit>{_UNIT})?",
    re.IGNORECASE,
)
"""words between the name and its figure; `CPU Virtual Memory: used = 50.5 GB`, psutil's `svmem(total=8, used=3`"""
_LOOK = re.compile(
    r"显存|顯存|内存|記憶體|mem|"
    r"\bused\b|\bfree\b|_free|in_use|rss|ram|alloc|reserved|\dG\s|gpu|cuda|[MG]iB\s*/|/ \d{3,6} MB",
    re.IGNORECASE,
)
_MESSAGE = re.compile(r"Tried to allocate|total-vm|total capacity|OOM when|anon-rss|^\s*File \"|pages RAM")
_EVALUATING = re.compile(r"^\W{0,3}(?:val|valid|validat\w+|eval|evaluat\w+|test|testing)\b(?!\s*loss)", re.IGNORECASE)

MEMORY = {
    *(
        "mem",
        "memory",
        "alloc",
        "allocated",
        "reserved",
        "resv",
        "rsv",
        "cached",
        "rss",
        "ram",
        "vram",
        "uss",
        "pss",
        "resident",
    ),
    *("vmrss", "maxrss", "maxmem", "footprint", "memuse", "memused"),
}
DEVICE = {"gpu", "cuda", "vram", "device", "hbm", "torch"}
HOST = {
    *("rss", "ram", "cpu", "host", "sys", "system", "process", "uss", "pss", "resident", "vmrss", "maxrss"),
    *("psutil", "svmem", "virtual"),
}
ONLY_ON_A_DEVICE = {"alloc", "allocated", "reserved", "resv", "rsv", "cached", "max", "maxmem"}
MAXIMA = {"max", "peak", "maxrss", "maxmem", "hwm", "reserved", "resv", "rsv", "cached"}
"""words of columns that never fall, or seldom: they rise with the largest batch so far, too"""
DIFFERENCES = {"begin", "delta", "difference", "diff", "increase"}
"""words of sentences that tell how much memory changed, not how much there is"""
UNITS = {"kb", "mb", "gb", "tb", "kib", "mib", "gib", "tib", "bytes"}
LEFT = {"free", "avail", "available"}
"""words of columns that show what is free"""
NOT_IN_USE = {
    *(
        "total",
        "limit",
        "capacity",
        "bandwidth",
        "util",
        "utilization",
        "param",
        "params",
    ),
    *(
        "format",
        "count",
        "num",
        "number",
        "workers",
        "retries",
        "ooms",
        "frac",
        "fraction",
        "version",
        "clock",
        "tried",
    ),
    *("id", "time", "temp", "power", "driver", "size", "batch", "on", "of", "bank", "threshold", "target", "swap"),
}


class _Column(NamedTuple):
    """What a name says of the figures under it."""

    name: str
    where: str
    """device, host, or empty where the name does not tell"""
    maximum: bool
    unit: str
    bare: bool
    """only a device is named: the figure is memory if it has a unit"""
    left: bool = False


_FORMATS: Sequence[tuple[_Column, re.Pattern[str]]] = (
    (_Column("GPU_mem", "device", True, "", False), re.compile(r"^\s*\d{1,6}/\d{1,6}\s+([\d.]{1,7})(G)\s")),
    (_Column("nvidia-smi", "device", False, "", False), re.compile(r"\b(\d{2,6})(M)iB\s*/\s*\d{3,6}MiB")),
    (_Column("gpustat", "device", False, "", False), re.compile(r"\|\s*(\d{1,6}) / \d{3,6} (M)B\b")),
    (_Column("MA", "device", False, "", False), re.compile(r"\bMA ([\d.]{1,9}) (G)B\s+Max_MA [\d.]")),
    (
        _Column("docker stats", "host", False, "", False),
        re.compile(r"\b([\d.]{1,9})([KMG])iB / [\d.]{1,9}[KMGT]iB\s+[\d.]{1,6}%"),
    ),
    (
        _Column("used, of free", "host", False, "", False),
        re.compile(r"^Mem:\s+[\d.]{1,12}(?:[KMGT]i?)?\s+([\d.]{1,12})([KMGT]?)i?\s+[\d.]"),
    ),
)
"""lines of programs whose figures have no name beside them: (column, pattern of the figure and its unit)"""


def read_trends(
    lines: Sequence[Line], steps: Sequence[ProgressLine], rows: Mapping[int, Mapping[str, str]]
) -> tuple[Trend, ...]:
    """Every series of memory figures that is long enough to tell something; ``rows`` are those of tables."""
    series: dict[tuple[str, str], tuple[_Column, list[tuple[int, float, str, str]]]] = {}
    phases = _phases(lines, steps)
    for at, line in enumerate(lines):
        row = rows.get(at)
        if row is None and (not _LOOK.search(line.text[:600]) or _MESSAGE.search(line.text)):
            continue
        for column, value, unit in _of_a_row(row) if row is not None else _of_a_line(line.text[:600]):
            _, points = series.setdefault((column.name, line.rank), (column, []))
            if not points or points[-1][0] != line.number or "/" in line.text:
                points.append((line.number, value, unit, phases[at]))
    found = (_series(column, points) for column, points in series.values() if len(points) >= LEAST)
    return tuple(trend for trend in found if trend is not None)


def _of_a_line(text: str) -> Iterator[tuple[_Column, float, str]]:
    for written, meant in _TRANSLATED if "{" in text or not text.isascii() else ():
        text = written.sub(meant, text)
    for known, pattern in _FORMATS:
        if found := pattern.search(text):
            yield known, _float(found[1]), found[2]
            return
    if any(word in text for word in ("used", "usage", "consumed", "current")) and (found := _SENTENCE.search(text)):
        name = " ".join(found["name"].strip(":=( ").split())
        words = {word.lower() for word in _WORDS.findall(name)}
        if not words & DIFFERENCES:
            yield (
                _Column(name, _where(name), bool(words & MAXIMA), "", False),
                _float(found["value"]),
                found["unit"] or "",
            )
        return
    readings = list(_find_readings(text))
    if all(not unit and not column.unit for column, _, unit in readings):
        readings = list(_find_readings_before_names(text)) or readings
    yield from readings


def _find_readings(text: str) -> Iterator[tuple[_Column, float, str]]:
    for found in _READING.finditer(text):
        unit = found["unit"] or found["unit_of_all"] or ""
        column = _column(found["key"], bool(unit))
        if column is None:
            continue
        value = _float(found["value"])
        if not column.bare or (unit or column.unit)[:1].upper() in ("M", "G") or value >= BYTES:
            yield column, value, unit


def _find_readings_before_names(text: str) -> Iterator[tuple[_Column, float, str]]:
    for found in _BEHIND.finditer(text):
        column = _column(found["key"], True)
        if column is not None and not column.left:
            yield column, _float(found["value"]), found["unit"]


def _of_a_row(row: Mapping[str, str]) -> Iterator[tuple[_Column, float, str]]:
    for name, cell in row.items():
        column = _column(name, bool(_UNIT_IN_KEY.search(name)))
        found = _CELL.fullmatch(cell)
        if column is not None and found and not (column.bare and not (found["unit"] or column.unit)):
            yield column, _float(found["value"]), found["unit"] or ""


def _column(key: str, has_unit: bool) -> _Column | None:
    """What the words of a name mean; None where they are not about memory in use."""
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", key.rsplit("/", 1)[-1])
    split = _TWO_IN_ONE.sub(r"\1 ", split.replace("_", " "))
    words = {word.lower() for word in _WORDS.findall(split)}
    device, left = bool(words & DEVICE), bool(words & LEFT)
    if "used" in words:
        words.discard("total")  # used in all
    if {"driver", "allocated"} <= words:
        words.discard("driver")  # torch.mps.driver_allocated_memory()
    if {"in", "use"} <= words:
        words.add("allocated")  # JAX's bytes_in_use
    in_use = "used" in words and bool(words & HOST)
    if words & NOT_IN_USE or not (words & MEMORY or device or in_use or (left and words <= LEFT | UNITS)):
        return None
    maximum = bool(words & MAXIMA)
    where = "device" if device else "host" if words & HOST else "device" if words & ONLY_ON_A_DEVICE else ""
    unit = _UNIT_IN_KEY.search(key) or _UNIT_FIRST.match(key)
    percent = "%" if words & {"percent", "pct"} and not has_unit else ""
    if not where and not has_unit and unit is None and not percent:
        where, maximum = "device", True  # MMCV's `memory: 3770`, the most since the start
    return _Column(" ".join(key.split()), where, maximum, unit[1] if unit else percent, not words & MEMORY, left)


def _where(name: str) -> str:
    words = {word.lower() for word in _WORDS.findall(name)}
    return "device" if words & DEVICE else "host" if words & HOST else ""


def _float(written: str) -> float:
    if _DECIMAL_COMMA.fullmatch(written):
        written = written.replace(",", ".")
    try:
        return float(written.replace(",", "").rstrip("."))
    except ValueError:
        return 0.0


def _series(column: _Column, points: Sequence[tuple[int, float, str, str]]) -> Trend | None:
    bare = sorted(value for _, value, unit, _ in points if not unit)
    guessed = column.unit or (_guess_unit(bare[len(bare) // 2]) if bare else "")
    if bare and not guessed:
        return None
    percent = (points[0][2] or guessed) == "%"
    readings = []
    for line, value, unit, phase in points:
        size = int(value * 1000) if percent else amount(f"{value:f}{unit or guessed}")
        if size is not None and 0 < size < 1 << 50:
            readings.append(ColumnReading(line, size, phase))
    every = len(readings) // MOST + 1
    thinned = tuple(readings[::every]) + (tuple(readings[-1:]) if (len(readings) - 1) % every else ())
    if len(readings) < LEAST:
        return None
    return Trend(column.name, column.where, thinned, column.maximum, percent, column.left)


def _guess_unit(value: float) -> str:
    """Of figures without one: bytes are many, GiB are few and have a fraction, most print MiB."""
    if value >= BYTES:
        return "B"
    if value >= 200:
        return "M" if value < 1e7 else "K"
    return "G" if value != int(value) else ""


def _phases(lines: Sequence[Line], steps: Sequence[ProgressLine]) -> list[str]:
    """For every line whether the run was training or evaluating."""
    doing = {step.at: step.doing for step in steps}
    found, now = [], "train"
    for at, line in enumerate(lines):
        if _EVALUATING.match(line.text) or doing.get(at) in ("eval", "results"):
            now = "eval"
        elif doing.get(at) == "train":
            now = "train"
        found.append(now)
    return found
