"""What the verdict says on both sides of a real out-of-memory boundary, and how long a step takes.

    python bench/boundary.py TABLE.csv [--layout nchw] [--only WORDS] [--most N [--seed S]] [--minutes M]

The table is timm's published training benchmark: mixed precision on an RTX 3090, and for each model the largest batch
of its ladder that fitted; the next larger one did not. So every row asks twice: the batch that fitted must not be
called impossible, and the one that died must not be called fitting, which is the worst mistake there is. The published
step time is held against ``step_seconds``. Rows at the top of the ladder have no batch that died.

timm must be installed. Attention was not fused in the PyTorch 1.12 of that benchmark, and gradients were kept by
zero_grad: both are set here.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oomproof.api.check import check
from oomproof.errors import InputError, OomproofError
from oomproof.memory.forecast import Forecast
from tables import classifier

GIB = 1 << 30
CARD = "RTX 3090"
LADDER = (512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 2, 1)
COLUMNS = ("model", "layout", "img_size", "batch_that_fit", "step_time_ms", "params_m")
SAME_MODEL = 0.01
"""by how much the parameters of a name may differ from the table's: some names stand for another model today"""


@dataclass(frozen=True)
class Answer:
    name: str
    batch: int
    fitted: Forecast
    died: Forecast | None
    """of the next larger batch; None at the top of the ladder"""
    step_time: float
    """published, in seconds"""

    @property
    def ratio(self) -> float | None:
        """Forecast to published time."""
        seconds = self.fitted.step_seconds
        return None if seconds is None else seconds.expected / self.step_time


def main() -> int:
    arguments = _arguments()
    with arguments.table.open(newline="") as file:
        records = list(csv.DictReader(file))
    missing = [name for name in COLUMNS if not records or name not in records[0]]
    if missing:
        print(f"boundary.py: {arguments.table} has no column {', '.join(missing)}", file=sys.stderr)
        return 1
    wanted = re.compile(arguments.only)
    chosen = [each for each in records if each["layout"] == arguments.layout and wanted.search(each["model"])]
    chosen = _sample(chosen, arguments.most, arguments.seed)
    answers, failed, started = [], [], time.perf_counter()
    for number, record in enumerate(chosen, 1):
        if arguments.minutes and time.perf_counter() - started > 60 * arguments.minutes:
            print(f"stopped after {number - 1} of {len(chosen)} rows")
            break
        try:
            answers.append(_answer(record))
            _print_row(answers[-1])
        except (OomproofError, RuntimeError) as error:  # timm: a model of another version
            failed.append(f"{record['model']}: {error}")
        print(f"\r{number} of {len(chosen)} rows, {time.perf_counter() - started:.0f} s", end="", file=sys.stderr)
    print(file=sys.stderr)
    _print_summary(answers)
    for text in failed:
        print("not forecast:", text)
    return 0 if answers else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, metavar="TABLE.csv")
    parser.add_argument("--layout", default="nchw", choices=("nchw", "nhwc"))
    parser.add_argument("--only", default="", metavar="WORDS", help="models whose name contains this")
    parser.add_argument("--most", type=int, default=0, metavar="N", help="at most N rows, spread evenly")
    parser.add_argument("--seed", type=int, metavar="S", help="rows in an order that is drawn, not the table's")
    parser.add_argument("--minutes", type=float, default=0, metavar="M", help="begin no row after so many minutes")
    arguments = parser.parse_args()
    if not arguments.table.is_file():
        parser.error(f"there is no table {arguments.table}: expected timm's benchmark as a CSV file (docs/accuracy.md)")
    return arguments


def _sample(records: list[dict[str, str]], most: int, seed: int | None) -> list[dict[str, str]]:
    """Spread evenly over the table, which is sorted by speed, or with a seed drawn by chance."""
    count = min(most or len(records), len(records))
    if seed is not None:
        return [records[place] for place in np.random.default_rng(seed).permutation(len(records))[:count]]
    return [records[place] for place in np.linspace(0, len(records) - 1, count).astype(int)]


def _answer(record: dict[str, str]) -> Answer:
    found, published = _parameters(record["model"]) / 1e6, float(record["params_m"])
    if abs(found / published - 1) > SAME_MODEL:
        raise InputError(f"{found:.1f} million parameters in this timm, {published:.1f} in the table: another model")
    batch, larger = int(record["batch_that_fit"]), [each for each in LADDER if each > int(record["batch_that_fit"])]
    return Answer(
        record["model"],
        batch,
        _forecast(record, batch),
        _forecast(record, min(larger)) if larger else None,
        float(record["step_time_ms"]) / 1000,
    )


def _forecast(record: dict[str, str], batch: int) -> Forecast:
    job = classifier(lambda: _model(record["model"]), batch, lambda: int(record["img_size"]), 1000)
    layout = record["layout"] == "nhwc"
    return check(job, CARD, precision="fp16", zero_grad="keep", channels_last=layout, cudnn_benchmark=True)


def _parameters(name: str) -> int:
    import torch

    with torch.device("meta"):
        return sum(each.numel() for each in _model(name).parameters())


def _model(name: str) -> Any:
    import timm
    from timm.layers import set_fused_attn

    set_fused_attn(False)
    return timm.create_model(name, pretrained=False)


def _print_row(answer: Answer) -> None:
    worst = "" if answer.died is None else f"; {_told(answer.died)}"
    if answer.died is not None and answer.died.fits:
        worst += "  DIED, AND WAS CALLED FITTING"
    if answer.fitted.outcome == "does not fit":
        worst += "  FITTED, AND WAS CALLED IMPOSSIBLE"
    ratio = "" if answer.ratio is None else f"; time {answer.ratio:.2f} of the published"
    print(f"{answer.name:40} b{answer.batch:<4} {_told(answer.fitted)}{worst}{ratio}", flush=True)


def _told(forecast: Forecast) -> str:
    on_device = forecast.on_device
    return f"{on_device.expected / GIB:5.2f} to {on_device.high / GIB:5.2f} GiB {forecast.outcome}"


def _print_summary(answers: list[Answer]) -> None:
    fitted = Counter(answer.fitted.outcome for answer in answers)
    died = Counter(answer.died.outcome for answer in answers if answer.died is not None)
    for name, counts in (("fitted", fitted), ("died", died)):
        told = ", ".join(f"{count} «{outcome}»" for outcome, count in sorted(counts.items()))
        print(f"of {sum(counts.values())} batches that {name}: {told}")
    if died:
        print(f"batches that died and were called fitting: {died['fits'] / sum(died.values()):.1%}")
    ratios = [answer.ratio for answer in answers if answer.ratio is not None]
    if ratios:
        low, middle, high = np.percentile(ratios, (10, 50, 90))
        print(f"time: {middle:.2f} of the published in the median, {low:.2f} to {high:.2f} for 8 of 10")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
