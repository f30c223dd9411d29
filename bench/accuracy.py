"""How far forecasts are from published GPU memory.

    python bench/accuracy.py TABLE.csv [TABLE.csv ...] [--cache FOLDER] [--only WORDS] [--most N] [--jobs N]
        [--crowd DATASET=OBJECTS]

Prints a line a row (forecast, upper figure, published, error), then for each table the median and the 90th percentile
of the absolute error and the share of rows whose upper figure is below the truth, which is what hurts.

Rows are shown in two halves by model name. The constants of the sites below were read off the «fit» half; the rules and
margins of the upper figure (memory/) were chosen with rows of both in view, so neither half is unseen: docs/accuracy.md
says which rows were. Rows cut off at the end of a card have no figure to
compare with and are left out. ``--cache`` keeps traced steps, so that a second run takes seconds.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from oomproof.api.check import forecast_step
from oomproof.errors import OomproofError
from oomproof.memory.after_training import follow
from oomproof.memory.cards.devices import find_device
from oomproof.memory.files.timeline_file import load_timeline, save
from oomproof.memory.timeline import Timeline
from oomproof.memory.validation import Validation
from oomproof.sources.job import TraceRequest
from oomproof.sources.settings import resolve
from tables import Row, read, with_crowds

MIB = 1 << 20


@dataclass(frozen=True)
class Site:
    """What belongs to one place's environment and to nobody else's."""

    expected: int
    """bytes that its figures hold besides what the row's level counts"""
    high: int
    cudnn_benchmark: bool
    why: str


SITES = {
    "gpumemnet": Site(
        1875 * MIB,
        2025 * MIB,
        True,
        "context and libraries, fitted; jumps between batch sizes show that convolutions were chosen by benchmark",
    ),
    "xmem": Site(40 * MIB, 90 * MIB, False, "kernels loaded after the first NVML record, fitted"),
    "torchvision": Site(0, 0, False, "torch.cuda.max_memory_allocated: nothing outside the allocator"),
    "ultralytics": Site(0, 0, False, "torch.cuda.memory_reserved: nothing outside the allocator"),
    "detectron2": Site(0, 0, False, "torch.cuda.max_memory_allocated: nothing outside the allocator"),
}


@dataclass(frozen=True)
class Result:
    table: str
    name: str
    half: str
    published: int
    expected: int
    high: int
    others: dict[str, int]
    seconds: float

    @property
    def error(self) -> float:
        return self.expected / self.published - 1


def main() -> int:
    arguments = _arguments()
    results: list[Result] = []
    failed: list[str] = []
    started = time.perf_counter()
    try:
        work = list(_work(arguments))
    except OomproofError as error:
        print(f"accuracy.py: {error}", file=sys.stderr)
        return 1
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for number, answer in enumerate(pool.map(_run, work), 1):
            if isinstance(answer, str):
                failed.append(answer)
            else:
                results.append(answer)
                _print_row(answer)
            print(f"\r{number} of {len(work)} rows, {time.perf_counter() - started:.0f} s", end="", file=sys.stderr)
    print(file=sys.stderr)
    for table in dict.fromkeys(result.table for result in results):
        _print_summary(table, [result for result in results if result.table == table])
    print(f"\ncovered {len(results)} of {len(work)} rows")
    for text in failed:
        print("not forecast:", text)
    return 0 if results else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", type=Path, metavar="TABLE.csv")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="keep traced steps here")
    parser.add_argument(
        "--only", default="", metavar="WORDS", help="rows whose name contains this (a regular expression)"
    )
    parser.add_argument("--most", type=int, default=0, metavar="N", help="at most N rows of each table, spread evenly")
    parser.add_argument(
        "--crowd",
        action="append",
        default=[],
        metavar="DATASET=OBJECTS",
        help="the most crowded image of a dataset that is not known here, cityscapes=120; its rows are forecast then",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (default 1)")
    arguments = parser.parse_args()
    for table in arguments.tables:
        if not table.is_file():
            parser.error(f"there is no table {table}: expected a CSV file such as xmem_truth.csv (docs/accuracy.md)")
    arguments.crowds = _crowds(parser, arguments.crowd)
    return arguments


def _crowds(parser: argparse.ArgumentParser, given: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in given:
        name, _, count = text.partition("=")
        if not name or not count.isdecimal():
            parser.error(f"--crowd wants DATASET=OBJECTS, such as cityscapes=120; got {text!r}")
        found[name] = int(count)
    return found


Work = tuple[Path, int, Path | None, dict[str, int]]


def _work(arguments: argparse.Namespace) -> Iterator[Work]:
    for path in arguments.tables:
        wanted = re.compile(arguments.only)
        numbers = [n for n, row in enumerate(read(path)) if not row.bent and wanted.search(row.name)]
        if arguments.most and len(numbers) > arguments.most:
            numbers = [numbers[i] for i in np.linspace(0, len(numbers) - 1, arguments.most).astype(int)]
        for number in numbers:
            yield path, number, arguments.cache, arguments.crowds


_ROWS: dict[Path, list[Row]] = {}


def _run(work: Work) -> Result | str:
    path, number, cache, crowds = work
    if path not in _ROWS:
        import torch

        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        _ROWS[path] = list(read(path))
    row = with_crowds(_ROWS[path][number], crowds)
    if row.reason:
        return f"{row.name}: {row.reason}"
    started = time.perf_counter()
    try:
        timeline = _timeline(row, cache)
        site = SITES[row.site]
        settings = resolve(row.job, {**row.settings, "cudnn_benchmark": site.cudnn_benchmark})
        answer = forecast_step(timeline, find_device(row.gpu), settings)
        if row.validated:
            run = forecast_step(follow(timeline, _timeline(row, cache, Validation())), find_device(row.gpu), settings)
            high = max(answer.reserved.high, run.reserved.high)
            answer = replace(answer, reserved=replace(answer.reserved, high=high))
    except OomproofError as error:
        return f"{row.name}: {error}"
    level = answer.allocated if row.level == "allocated" else answer.reserved
    half = "fit" if zlib.crc32(row.name.split()[0].encode()) % 2 == 0 else "test"
    seconds = time.perf_counter() - started
    return Result(
        path.stem,
        row.name,
        half,
        row.published,
        level.expected + site.expected,
        level.high + site.high,
        row.others,
        seconds,
    )


def _timeline(row: Row, cache: Path | None, validation: Validation | None = None) -> Timeline:
    request = TraceRequest(resolve(row.job, row.settings), validation=validation)
    if cache is None:
        return row.job.trace(request)
    cache.mkdir(parents=True, exist_ok=True)
    part = "-validation" if validation else ""
    kept = cache / f"{row.site}-{re.sub(r'[^A-Za-z0-9]+', '_', row.name)}{part}.timeline"
    if not kept.exists():
        save(row.job.trace(request), kept)
    return load_timeline(kept)


def _print_row(result: Result) -> None:
    low = "  UPPER FIGURE TOO LOW" if result.high < result.published else ""
    print(
        f"{result.table[:12]:12} {result.name:50} {result.half:4} forecast {result.expected // MIB:6} MiB, "
        f"upper {result.high // MIB:6}, published {result.published // MIB:6}, error {result.error:+7.1%}{low}",
        flush=True,
    )


def _print_summary(table: str, results: list[Result]) -> None:
    print(f"\n{table}")
    for half in ("fit", "test", "all"):
        chosen = [result for result in results if half in ("all", result.half)]
        if chosen:
            errors = np.abs([result.error for result in chosen])
            low = np.mean([result.high < result.published for result in chosen])
            width = np.median([result.high / result.expected - 1 for result in chosen])
            below = np.mean([result.error < 0 for result in chosen])
            print(
                f"  {half:4} {len(chosen):4} rows: median error {np.median(errors):.1%}, 90th percentile "
                f"{np.percentile(errors, 90):.1%}, too low on {below:.0%}; upper figure too low on {low:.1%}, and "
                f"above the forecast by {width:.0%} (median)"
            )
    for tool in {tool for result in results for tool in result.others}:
        pairs = [(result.others[tool], result.published) for result in results if tool in result.others]
        errors = np.abs([estimate / truth - 1 for estimate, truth in pairs])
        low = np.mean([estimate < truth for estimate, truth in pairs])
        print(
            f"  {tool} on the same rows: median error {np.median(errors):.1%}, 90th percentile "
            f"{np.percentile(errors, 90):.1%}, too low on {low:.1%}"
        )
    print(f"  {np.median([result.seconds for result in results]):.1f} s a row (median)")


if __name__ == "__main__":
    sys.exit(main())
