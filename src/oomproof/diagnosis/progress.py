"""How far the run was, and how its memory went: lines that training loops print, in the forms of common frameworks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from oomproof.diagnosis.amounts import amount
from oomproof.diagnosis.facts import Line, Progress, Trend
from oomproof.diagnosis.patterns import any_of

MOST = 4000
_STEPS: Sequence[re.Pattern[str]] = tuple(
    re.compile(pattern)
    for pattern in (
        r"Epoch ?(?:\(train\))?:? ?\[(?P<epoch>\d{1,6})\]\s*\[\s*(?P<step>\d{1,9})/\d+\]",  # mmdet, torchvision
        r"[Ee]poch:? ?\[?(?P<epoch>\d{1,6})(?:/\d+)?\]?[,:]?\s+(?:[Ii]ter|[Ss]tep"
        r"|[Bb]atch)\w{0,7}:? ?\[?(?P<step>\d{1,9})",  # YOLOX
        r"\bIter(?:\(train\))? ?\[\s*(?P<step>\d{1,9})/\d+\]",
        r"\biter: (?P<step>\d{1,9})\b",  # Detectron2
        r"^\s*(?P<epoch>\d{1,6})/\d{1,6}\s+(?:[\d.]+G|0G?)\s",  # Ultralytics
        r"\bEpoch (?P<epoch>\d{1,6}): +\d{1,3}%\|[^|]{0,80}\| (?P<step>\d{1,9})/\d+",  # Lightning
        r"\bEpoch (?P<epoch>\d{1,6})/\d{1,6}\b(?!.*it/s)",  # Keras
        r"^\s*(?P<step>\d{1,9})/\d+ \[[=>.]{3,60}\]",  # Keras
        r"^\s*(?P<step>\d{1,9})/\d+ [━ ]{3,60}",  # Keras 3
        r"global[ _]step[/ :=]{1,3}(?:sec: [\d.]+|(?P<step>\d{1,9}))",
        r"\b[Ss]tep[ :=#]{1,3}\[?(?P<step>\d{1,9})\b",
        r"\b[Ii]ter(?:ation)?[ :=#]{1,3}\[?(?P<step>\d{1,9})\b",
        r"\b[Ee]poch[ :=#]{1,3}\[?(?P<epoch>\d{1,6})\b",
        r"'epoch': (?P<epoch>\d{1,6})",
        r"\d{1,3}%\|[^|]{0,80}\| ?(?P<step>\d{1,9})/\d+ \[",
    )
)
_STEP_WORD = re.compile(r"poch|ter|tep|\d/\d|%\||'epoch'")
_DOING: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (doing, re.compile(pattern, flags))
    for doing, pattern, flags in (
        (
            "cache",
            r"[Cc]aching images|[Cc]ache images|caching to (?:RAM|memory)|Caching (?:dataset|data"
            r"|features)|loading (?:all )?images into (?:RAM|memory)",
            0,
        ),
        ("shuffle", r"[Ss]huffle buffer", 0),
        (
            "results",
            r"Accumulating evaluation results|Running per image evaluation"
            r"|Evaluate annotation type|Loading and preparing results|Evaluating bbox"
            r"|Evaluating segm|COCO ?eval|Preparing results for|Computing and printing"
            r"|Evaluating predictions|[Cc]ollect(?:ing)? results|Saving results|Computing metrics",
            0,
        ),
        (
            "eval",
            r"^\s*(?:Validat|Evaluat|Sanity Check|Testing|Predicting)|\b(?:[Rr]unning"
            r"|[Ss]tart(?:ing|ed)?|[Bb]egin(?:ning)?|[Pp]erforming)\s+(?:the )?(?:[Ee]val|[Vv]alid"
            r"|[Ii]nference|[Tt]est)|Start inference on|Inference done \d|Epoch ?\((?:val|test)\)|"
            r"^\s*Class\s+Images\s+(?:Instances|Labels|Targets)|\b(?:val|valid|validation|eval|Val"
            r"|Test)(?:idat\w+)?:? *\[? *\d+/\d+|(?:Validat\w+|Evaluat\w+|Val|Eval"
            r"|Test)\w*:? +\d{1,3}%\||\*{3,} Running (?:[Ee]valuation|Prediction)|\bTest: +\["
            r"|eval(?:uation)? (?:epoch|step|batch)",
            0,
        ),
        (
            "eval_job",
            r"Waiting for new checkpoint|eval_continuously|checkpoint_dir.*eval",
            0,
        ),
        (
            "resume",
            r"[Rr]esum(?:e|ing|ed)\b|[Ll]oad(?:ing|ed)? (?:model |the )?checkpoint|=> loaded"
            r"|loading weights from|Restoring from checkpoint|load checkpoint from"
            r"|Restored all states|Loading states from",
            0,
        ),
        (
            "done",
            r"Training (?:complete|finished|done|is done)|\bepochs completed in"
            r"|Loss for final step|Trainer\.fit. stopped|`Trainer.fit` stopped|training completed",
            re.IGNORECASE,
        ),
        ("save", r"Saving checkpoint|Saving model|Saved checkpoint|Save weights to|Saving checkpoints for", 0),
    )
)
_DOING_WORD = any_of(
    r"ach(?:e|ing)",
    r"uffle",
    r"val",
    r"Val",
    r"Eval",
    r"est",
    r"nfer",
    r"esult",
    r"omput",
    r"ccumul",
    r"esum",
    r"oad",
    r"rain",
    r"pochs",
    r"final",
    r"Sav",
    r"Restor",
    r"Sanity",
    r"Predict",
    r"Waiting",
    r"Class",
    r"annotation",
    r"COCO",
    r"=> ",
    r"RAM",
)
_COLUMNS: Sequence[tuple[str, str, str, re.Pattern[str]]] = (
    # name, whose memory, unit where the column has none, pattern
    ("max_mem", "device", "M", re.compile(r"max_mem: ?(\d{1,7})M?\b")),
    ("memory", "device", "M", re.compile(r"\bmemory: (\d{2,7})\b")),
    ("max mem", "device", "M", re.compile(r"max mem: (\d{1,7})\b")),
    ("mem", "device", "M", re.compile(r"\bmem: ?(\d{1,7})M[Bb]?\b")),
    ("GPU_mem", "device", "G", re.compile(r"^\s*\d{1,6}/\d{1,6}\s+([\d.]{1,7})G\s")),
    (
        "host",
        "host",
        "M",
        re.compile(
            r"\b(?:RSS|rss|RAM|ram|[Cc]pu[ _]mem(?:ory)?|host[ _]mem(?:ory)?|MaxRSS|VmRSS"
            r"|[Pp]rocess memory|sys(?:tem)?[ _]mem(?:ory)?)(?: used| usage| use|_mb"
            r"|_gb)?[ :=]{1,4}(\d[\d.]{0,10} ?(?:[KMGkmg]i?[Bb]?)?)"
        ),
    ),
    (
        "GPU memory",
        "device",
        "M",
        re.compile(
            r"\b(?:GPU|gpu|CUDA|cuda|VRAM|vram)[ _]?(?:[Mm]em(?:ory)?|usage|mem_used"
            r"|memory_allocated|allocated)?(?:[ _](?:used|usage|allocated"
            r"|reserved))?[ :=(]{1,4}(\d[\d.]{0,10} ?(?:[KMGkmg]i?[Bb]?))"
        ),
    ),
    (
        "allocated",
        "device",
        "M",
        re.compile(
            r"\b(?:memory_allocated|mem_alloc|allocated|[Mm]em(?:ory)?(?: usage| used"
            r"| alloc(?:ated)?)?)[ :=]{1,4}(\d[\d.]{0,10} ?[KMGkmg]i?[Bb])\b"
        ),
    ),
)
_COLUMN_WORD = re.compile(r"[Mm]em|RSS|rss|RAM|ram|\dG\s|GPU|gpu|VRAM|vram|cuda|CUDA|alloc")


def progress(lines: Sequence[Line]) -> tuple[Progress, ...]:
    found: list[Progress] = []
    for at, line in enumerate(lines):
        text = line.text[:400]
        if not text or text.lstrip().startswith(("File ", "^")):
            continue
        doing = _doing(text)
        step = _step(text) if doing in ("", "eval") else None
        if doing == "" and step is None:
            continue
        epoch, number = step or (None, None)
        found.append(Progress(at, line.number, doing or "train", epoch, number, " ".join(text.split())[:160]))
    if len(found) <= MOST:
        return tuple(found)
    # The beginning, the end, and every other kind of line between; steps between are thinned out.
    keep = len(found) // (MOST // 2) + 1
    ends = MOST // 4
    middle = [each for place, each in enumerate(found[ends:-ends]) if each.doing != "train" or place % keep == 0]
    return (*found[:ends], *middle[:MOST], *found[-ends:])


def _doing(text: str) -> str:
    if not _DOING_WORD.search(text):
        return ""
    return next((doing for doing, pattern in _DOING if pattern.search(text)), "")


def _step(text: str) -> tuple[int | None, int | None] | None:
    if not _STEP_WORD.search(text):
        return None
    for pattern in _STEPS:
        if found := pattern.search(text):
            named = found.groupdict()
            epoch, step = named.get("epoch"), named.get("step")
            return (int(epoch) if epoch else None, int(step) if step else None)
    return None


def trends(lines: Iterable[Line]) -> tuple[Trend, ...]:
    """Memory columns with at least six figures in them."""
    points: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for line in lines:
        text = line.text[:400]
        if not _COLUMN_WORD.search(text) or "Tried to allocate" in text or "total-vm" in text:
            continue
        for name, where, unit, pattern in _COLUMNS:
            if (found := pattern.search(text)) is not None:
                size = amount(found[1] if found[1][-1:].isalpha() else f"{found[1]}{unit}")
                if size is not None and 0 < size < 1 << 50:
                    points.setdefault((name, where), []).append((line.number, size))
                break
    return tuple(Trend(name, where, _thinned(series)) for (name, where), series in points.items() if len(series) >= 6)


def _thinned(series: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    every = len(series) // 1000 + 1
    return (*series[::every], series[-1])
