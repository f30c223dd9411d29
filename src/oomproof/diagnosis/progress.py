"""How far the run was: lines that training loops print, in the forms of common frameworks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from oomproof.diagnosis.facts import Line, ProgressLine
from oomproof.diagnosis.patterns import any_of

MOST = 4000
_STEPS: Sequence[re.Pattern[str]] = tuple(
    re.compile(pattern)
    for pattern in (
        # mmdet, torchvision, DINO
        r"Epoch ?(?:\(train\))?:? {0,3}\[(?P<epoch>\d{1,6})(?:/\d{1,6})?\]\s*\[\s*(?P<step>\d{1,9})/\d+\]",
        r"[Ee]poch:? ?\[?(?P<epoch>\d{1,6})(?:/\d+)?\]?[,:]?\s+(?:[Ii]ter|[Ss]tep"
        r"|[Bb]atch)\w{0,7}:? ?\[?(?P<step>\d{1,9})",  # YOLOX
        r"\b[Ee]poch:? ?(?P<epoch>\d{1,6})(?:/\d{1,6})?[:,]?\s{0,3}\[ {0,6}(?P<step>\d{1,9})/\d",
        # timm, Swin, PyTorch's examples
        r"\bTrain(?:ing)?(?: Epoch)?:? \[?(?P<epoch>\d{1,6})(?:/\d{1,6})?\]?\s*\[\s*(?P<step>\d{1,9})/\d",
        r"\[Epoch (?P<epoch>\d{1,6})\]\s?\[\s*(?P<step>\d{1,9})/\d",  # GluonCV
        r"\[batch=(?P<step>\d{1,9})/\d",  # Composer
        r"\bepoch (?P<epoch>\d{1,6}): +(?P<step>\d{1,9}) / \d",  # fairseq
        r"^(?:\S{1,40} ){0,4}\[(?P<step>\d{1,9})\] \w{0,30}loss\w{0,20}=",  # Flax's examples
        r"^\s*(?P<epoch>\d{1,6})/\d{1,6} \* Epoch \(train\)",  # Catalyst
        r"\bIter(?:\(train\))? ?\[\s*(?P<step>\d{1,9})/\d+\]",
        r"\biter: (?P<step>\d{1,9})\b",  # Detectron2
        r"^\s*(?P<epoch>\d{1,6})/\d{1,6}\s+(?:[\d.]+G|0G?)\s",  # Ultralytics
        r"\bEpoch (?P<epoch>\d{1,6}): +\d{1,3}%\|[^|]{0,80}\| (?P<step>\d{1,9})/\d+",  # Lightning
        r"\bEpoch (?P<epoch>\d{1,6})/\d{1,6}\b(?!.*it/s)",  # Keras
        r"^\s*(?P<step>\d{1,9})/\d+ \[[=>.]{3,60}\]",  # Keras
        r"^\s*(?P<step>\d{1,9})/\d+ [━ ]{3,60}",  # Keras 3
        r"global[ _]step[/ :=]{1,3}(?:sec: [\d.]+|(?P<step>\d{1,9}))",
        r"\b[Ee]poch[ :=#]{1,3}\[?(?P<epoch>\d{1,6})\b.{0,20}?\b(?:[Ii]t(?:er\w{0,6})?|[Ss]tep|[Bb]atch)"
        r"[ :=#]{1,6}\[?(?P<step>\d{1,9})\b",
        r"\b[Ss]tep[\"']?[ :=#]{1,6}\[?(?P<step>\d{1,9})\b",
        r"\b[Ii]t(?:er(?:ation)?)?[\"']?[ :=#]{1,6}\[?(?P<step>\d{1,9})\b",
        r"\b[Ee]poch[\"']?[ :=#]{1,3}\[?(?P<epoch>\d{1,6})\b",
        r"^\W{0,3}(?:[Tt]rain\w*:? )?\[\s*(?P<step>\d{1,9})/\d{1,9}\]",
        r"'epoch': (?P<epoch>\d{1,6})",
        r"\d{1,3}%\|[^|]{0,80}\| ?(?P<step>\d{1,9})/\d+ \[",
    )
)
_ABOUT_A_SET = re.compile(
    r"\W{0,6}(?:val|valid|validat\w+|eval|evaluat\w+|test|testing)\W{1,3}"
    r"(?:(?:data(?:set)?|set|split|sample|image|example|size|interval|freq|every|annotation)s?\b|dict\b|\d+$"
    r"|[\d,]{1,12} (?:images|samples|examples|files)|(?:true|false|none)\b|\S{1,200}\.(?:txt|json|ya?ml|csv)\b)",
    re.IGNORECASE,
)
"""lines of a set-up that tell which images there are to evaluate on, and how often"""
_PREPARING = re.compile(
    r"[^|%]{0,200}\b(?:[Ss]canning|[Dd]ownload\w*|[Ee]xtract\w*|[Uu]npack\w*|[Uu]nzip\w*|[Vv]erify\w*|[Cc]onvert\w*"
    r"|[Cc]opy\w*|[Pp]arsing|[Ii]ndex\w*|[Rr]eading|[Ll]oading|[Pp]reprocess\w*|Map|Filter|Generating \w{1,10} split"
    r"|Resolving|Fetching|Creating)\b[^|]{0,240}?\d{1,3}%\|"
)
"""bars of what goes before a training; without such a word they count its steps"""
_RUNS_EVALUATION = re.compile(r"\*{3,} Running (?:[Ee]valuation|[Pp]rediction)")
_BARE_BAR = re.compile(r"\s*\d{1,3}%\|")
"""a bar without a word: of whatever the Trainer of Hugging Face said last that it runs"""
_BEGINS_AT = re.compile(
    r"\b(?:start|begin|initial)\w*\b.{0,40}\b(?:at|from) (?:epoch|iteration|iter|step|global step)\b", re.IGNORECASE
)
"""where a run begins is not how far it came"""
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_PLACE = re.compile(r'\s*File ".{1,300}", line \d')
_STEP_WORD = re.compile(r"loss\w*=|poch|\b[Ii]t|ter|tep|\d/\d|%\||'epoch'")
_DOING: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (doing, re.compile(pattern, flags))
    for doing, pattern, flags in (
        (
            "cache",
            r"^\s*Loading dataset: +\d{1,3}%\|"  # MONAI
            r"|[Cc]aching images|[Cc]ache images|caching to (?:RAM|memory)|Caching (?:dataset|data"
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
            r"|[Ii]nference|[Tt]est)|Start inference on|Inference done \d|Epoch ?\((?:val|valid|eval|test)\)|"
            r"^\s*Class\s+Images\s+(?:Instances|Labels|Targets)|\b(?:val|valid|validation|eval|Val"
            r"|Test)(?:idat\w+)?:? *\[? *\d+/\d+|(?:Validat\w+|Evaluat\w+|Val|Eval"
            r"|Test)\w*(?: \[?\d{1,6}(?:/\d{1,6})?\]?)?:? +\d{1,3}%\|"
            r"|\*{3,} Running (?:[Ee]valuation|Prediction)|\bTest: +\["
            r"|eval(?:uation)? (?:epoch|step|batch)"
            r"|^\[[> ]{10,}\] \d+/\d+, [\d.]+ task/s"
            r"|^\W{0,3}(?:val|valid|eval|validation|evaluation|test)\b\]?[\s:|,]+(?!loss|acc|m?AP|m?[Ii]o[Uu]|dice|score)",
            0,
        ),
        (
            "eval_job",
            r"Waiting for new checkpoint|eval_continuously|checkpoint_dir.*eval",
            0,
        ),
        (
            "resume",
            # Not of an option that is off: resume=False, 'resume': None, --resume none.
            r"[Rr]esum(?:e|ing|ed)\b(?!['\"]?[ =:]{1,4}(?:['\"]?(?:False|None|none|null|no)\b|0\b|['\"]{2}|[,)]|$))"
            r"|[Ll]oad(?:ing|ed)? (?:model |the )?checkpoint|=> loaded"
            r"|loading weights from|Restoring from checkpoint|load checkpoint from"
            r"|Restored all states|Loading states from"
            r"|(?:checkpoint|optimizer|state)\w* (?:loaded|restored)|[Cc]ontinuing (?:training )?(?:at|from)"
            r"|[Ll]oad(?:ing|ed) (?:model|weights|optimizer|states?)\b.{0,20}? from .{0,120}?"
            r"(?:checkpoint|ckpt|last\b|epoch)",
            0,
        ),
        (
            "done",
            r"Training (?:complete|finished|done|is done)|\bepochs completed in"
            r"|Loss for final step|Trainer\.fit. stopped|`Trainer.fit` stopped|training completed"
            r"|early stopping\s*$|early stopping (?:at|after|triggered)|training stopped early|stopping training\b"
            r"|signaling trainer to stop|Overall training speed: \d|Total training time: \d|Training time \d+:\d"
            r"|finished training|['\"]train_runtime['\"]: ",
            re.IGNORECASE,
        ),
        ("save", r"Saving checkpoint|Saving model|Saved checkpoint|Save weights to|Saving checkpoints for", 0),
    )
)
_DOING_WORD = any_of(
    r"ach(?:e|ing)",
    r"uffle",
    r"val",
    r"task/s",
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
    r"inish",
    r"topp",
    r"ignaling",
    r"aining",
    r"ontinu",
    r"estored",
)
_OF_EPOCHS = re.compile(
    r"[Ee]poch\D{0,4}\[?(\d{1,6})\s?(?:/|of)\s?(\d{1,6})\b|^\s*(\d{1,6})/(\d{1,6})\s+(?:[\d.]+G|0G?)\s"
)
_STEP_COLUMNS = ("step", "steps", "it", "iter", "iteration", "global_step", "batch")
_EPOCH_COLUMNS = ("epoch", "ep", "epochs")


def read_progress(lines: Sequence[Line], rows: Mapping[int, Mapping[str, str]]) -> tuple[ProgressLine, ...]:
    """Lines that tell how far the run is; ``rows`` are those of tables, by their place."""
    found: list[ProgressLine] = []
    evaluating = False
    for at, line in enumerate(lines):
        text = line.text[:400]
        # Below each place of a traceback stands its code, which speaks of loading and evaluating, too.
        if not text or text.lstrip().startswith(("File ", "^")) or (at and _PLACE.match(lines[at - 1].text)):
            continue
        evaluating = bool(_RUNS_EVALUATION.search(text)) or (evaluating and "'epoch':" not in text)
        doing = "eval" if evaluating and _BARE_BAR.match(text) else _find_activity(text)
        step = (_row_step(rows[at]) if at in rows else _step(text)) if doing in ("", "eval") else None
        if doing in ("", "eval") and _PREPARING.match(text):
            continue
        if doing == "" and (step is None or _BEGINS_AT.search(text)):
            continue
        epoch, number = step or (None, None)
        of = _OF_EPOCHS.search(text) if doing in ("", "eval") else None
        epochs = int(of[2] or of[4]) if of else None
        found.append(
            ProgressLine(at, line.number, doing or "train", epoch, number, " ".join(text.split())[:160], epochs)
        )
    if len(found) <= MOST:
        return tuple(found)
    # The beginning, the end, and every other kind of line between; steps between are thinned out.
    keep = len(found) // (MOST // 2) + 1
    ends = MOST // 4
    middle = [each for place, each in enumerate(found[ends:-ends]) if each.doing != "train" or place % keep == 0]
    return (*found[:ends], *middle[:MOST], *found[-ends:])


def _find_activity(text: str) -> str:
    if not _DOING_WORD.search(text) or _ABOUT_A_SET.match(text):
        return ""
    return next((doing for doing, pattern in _DOING if pattern.search(text)), "")


def _step(text: str) -> tuple[int | None, int | None] | None:
    if not _STEP_WORD.search(text):
        return None
    if "," in text:
        text = _THOUSANDS.sub("", text)
    for pattern in _STEPS:
        if found := pattern.search(text):
            named = found.groupdict()
            epoch, step = named.get("epoch"), named.get("step")
            return (int(epoch) if epoch else None, int(step) if step else None)
    return None


def _row_step(row: Mapping[str, str]) -> tuple[int | None, int | None] | None:
    named = {name.lower(): cell for name, cell in row.items() if cell.isdigit()}
    epoch, step = (
        next((int(named[name][:9]) for name in names if name in named), None)
        for names in (_EPOCH_COLUMNS, _STEP_COLUMNS)
    )
    return None if epoch is None and step is None else (epoch, step)
