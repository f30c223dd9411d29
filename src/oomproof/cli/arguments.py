"""The options that commands share, and what their texts mean: devices, NAME=VALUE pairs, sweeps, files to write."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from oomproof.errors import InputError
from oomproof.files.looking import hint_at_home, is_folder, is_there
from oomproof.files.replacing import find_place
from oomproof.sources import describe_forms

if TYPE_CHECKING:
    from oomproof.data.annotations.dataset import Dataset
    from oomproof.memory.cards.devices import Device

MOST_VALUES = 64
EVERY_INTEGER_UP_TO = 16
OUTSIDE_BRACKETS = re.compile(r",(?![^()\[\]]*[)\]])")
"""commas between values, not those within one"""
KEY = re.compile(r"[A-Z][A-Z0-9_]*(\.[A-Z0-9_]+)+")
"""a key of a Detectron2 config, which is not a name of a file"""

JobText = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help=describe_forms(others=not {"-h", "--help"}.isdisjoint(sys.argv)),
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY VALUE]...",
        help='Keys of a Detectron2 config as its tools take them: SOLVER.IMS_PER_BATCH 8 INPUT.MIN_SIZE_TRAIN "(600,)"',
        show_default=False,
    ),
]
ConfigFile = Annotated[
    str,
    typer.Option(
        "--config-file",
        metavar="FILE",
        help="Of a Detectron2 training script: the YAML file or zoo name that its own --config-file would get.",
        show_default=False,
    ),
]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="DEVICE",
        help='A GPU by name ("RTX 3060", A100-80GB; see `oomproof gpus`), a size (8GiB), or `this` machine\'s GPU, '
        "less what others hold on it.  [default: this]",
        show_default=False,
    ),
]
Batch = Annotated[
    str | None,
    typer.Option("--batch", metavar="N", help="Images a step; short for --set batch=N, and wins over it."),
]
ImageSize = Annotated[
    str | None,
    typer.Option("--image-size", metavar="HxW", help="Height x width in pixels, 800x1333; for --set image_size=HxW."),
]
Gpus = Annotated[
    str | None,
    typer.Option(
        "--gpus", metavar="N", help="GPUs that share the batch of a config, or that a script finds; for --set gpus=N."
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision", metavar="NAME", help="fp16, bf16; mixed_float16, mixed_bfloat16 in Keras; for --set precision."
    ),
]
Backend = Annotated[
    str | None,
    typer.Option("--backend", metavar="NAME", help="Of a Keras job: tensorflow, torch, jax; for --set backend=NAME."),
]
Pairs = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting the job has: precision=fp16. May be repeated."),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="FILE", help="Start from the settings that `fit --write` left in FILE; other options win."
    ),
]
Ram = Annotated[
    str | None,
    typer.Option(
        "--ram",
        metavar="SIZE",
        help="Host RAM that the job may take: 16GiB, or `this` machine's or container's. Verdict and exit code then "
        "count it too.",
    ),
]
Patience = Annotated[
    str | None,
    typer.Option(
        "--patience",
        metavar="SECONDS",
        help="Of a training script (-- python train.py): how long it may take to its second step.  [default: 300]",
        show_default=False,
    ),
]
Data = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="PATH",
        help="The dataset's annotations, as `oomproof data` reads them. The forecast is then that of the worst batch "
        "that an epoch can make, and names its images.",
        show_default=False,
    ),
]
Records = Annotated[
    list[str] | None,
    typer.Option(
        "--records",
        metavar="FILES",
        help='Of a pipeline.config: the TFRecords it trains on, a file or a pattern in quotes ("train.record-*"), as '
        "--data. May be repeated.  [default: train_input_reader's own, where they are here; `none` reads nothing]",
        show_default=False,
    ),
]
ImageFolder = Annotated[
    str,
    typer.Option(
        "--images",
        metavar="DIR",
        help="Of --data: the folder of the images, whose headers say how large they really are.",
        show_default=False,
    ),
]
Split = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="NAME",
        help="Of --data: one part of a dataset that has several.  [default: YOLO train, else all]",
        show_default=False,
    ),
]
Grouping = Annotated[
    bool | None,
    typer.Option(
        "--grouping/--no-grouping",
        help="Of --data: whether the data loader puts images of like aspect ratio together.  [default: as the job has "
        "it: Detectron2 does]",
        show_default=False,
    ),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE.html",
        help="Also write the answer as a page, one file that opens offline with pictures: pip install 'oomproof[page]'",
        show_default=False,
    ),
]
Shm = Annotated[
    str | None,
    typer.Option(
        "--shm",
        metavar="SIZE",
        help="What /dev/shm can hold: 64MiB, as Docker has it by itself, or `this` machine's. Verdict and exit code "
        "then count the batches that data workers pass through it.",
    ),
]
Beside = Annotated[
    str | None,
    typer.Option(
        "--beside",
        metavar="SIZE",
        help="What another job on the same GPU holds, as nvidia-smi shows it: 3GiB. With `--on this`, what others hold "
        "now is taken off without it.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout, bytes as integers; see docs/json.md.")]
Everything = Annotated[
    bool, typer.Option("--all", help="The whole report: every kind, module, phase and note, not the short one.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def device_on(on: str, beside: str | None = None) -> Device:
    """The device that ``--on`` names; without it, this machine's. Less what ``--beside`` says."""
    from oomproof.memory.cards.beside import hold_beside
    from oomproof.memory.cards.devices import find_device

    if on:
        return hold_beside(find_device(on), beside)
    try:
        return hold_beside(find_device("this"), beside)
    except InputError as error:
        raise InputError(f"--on was not given, and {error}") from None


def parse_ram(ram: str | None) -> int | None:
    """The bytes that ``--ram`` grants."""
    from oomproof.memory.host_memory import ram_of

    return None if ram is None else ram_of(ram)


def dataset_at(
    data: str,
    images: str,
    split: str,
    grouping: bool | None,
    say: Callable[[str, float], None],
    *,
    records: Sequence[str] = (),
) -> Dataset | Literal[False] | None:
    """What ``--data`` or ``--records`` and the options beside them name; False: nothing is to be read."""
    if records:
        from oomproof.data.annotations.read import read_records

        if data or images or split:
            raise InputError(
                "--records names the TFRecords with all that is in them: leave out --data, --images, --split"
            )
        return False if list(records) == ["none"] else read_records(records, progress=say)
    if not data:
        beside = {"--images": images, "--split": split, "--grouping": grouping is not None}
        if idle := [option for option, given in beside.items() if given]:
            raise InputError(f"{idle[0]} says more about --data PATH, which was not given")
        return None
    from oomproof.data.annotations.read import read_dataset

    return read_dataset(data, images or None, split=split, progress=say)


def parse_shm(shm: str | None) -> int | None:
    """The bytes that ``--shm`` says."""
    from oomproof.memory.host_memory import shm_of

    return None if shm is None else shm_of(shm)


def pair(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise InputError(f"{option} wants NAME=VALUE, for example {option} {example}; got {text!r}")
    return name.strip(), value.strip()


def gather_settings(
    pairs: Sequence[str],
    batch: str | None,
    image_size: str | None,
    file: Path | None = None,
    gpus: str | None = None,
    *,
    precision: str | None = None,
    backend: str | None = None,
) -> dict[str, Any]:
    """The file of ``--from`` first; then ``--set`` in order, the last one wins; then the shorthands, which win."""
    given = {**_read(file), **dict(pair(text, "--set", "precision=fp16") for text in pairs)}
    short = {"batch": batch, "image_size": image_size, "gpus": gpus, "precision": precision, "backend": backend}
    return {**given, **{name: value for name, value in short.items() if value is not None}}


def check_names(given: Mapping[str, Any], taken: Collection[str], function: str) -> None:
    """Refuses settings that cannot be told from an argument of the public function."""
    if clash := given.keys() & set(taken):
        raise InputError(f"--set {min(clash)}=...: {function} has an argument of that name; rename the job's parameter")


def with_keys(overrides: Sequence[str] | None, given: dict[str, Any]) -> list[str]:
    """KEY VALUE pairs, with those keys of Detectron2 that came by ``--set``: they are checked where configs are.

    >>> with_keys(["SOLVER.MAX_ITER", "9"], {"MODEL.MASK_ON": "True", "boxes": "9"})
    ['SOLVER.MAX_ITER', '9', 'MODEL.MASK_ON', 'True']
    """
    keys = [name for name in given if KEY.fullmatch(name)]
    return [*(overrides or ()), *(text for key in keys for text in (key, str(given.pop(key))))]


def sweep_values(text: str, option: str = "--sweep") -> tuple[str, tuple[str, ...]]:
    """``batch=1..16`` or ``batch=1,2,4`` -> the setting's name and the values as texts.

    >>> sweep_values("batch=1..4")
    ('batch', ('1', '2', '3', '4'))
    >>> sweep_values("INPUT.MIN_SIZE_TRAIN=(640, 800),(800,)")
    ('INPUT.MIN_SIZE_TRAIN', ('(640, 800)', '(800,)'))
    >>> sweep_values("batch=1..48")
    ('batch', ('1', '2', '4', '8', '16', '32', '48'))
    """
    name, wanted = pair(text, option, "batch=1..16")
    first, dash, last = wanted.partition("-")
    if dash and first.isdigit() and last.isdigit():
        raise InputError(f"{option} {text} is no range: expected two dots, {option} {name}={first}..{last}")
    values = _range(text, wanted) if ".." in wanted else [part.strip() for part in OUTSIDE_BRACKETS.split(wanted)]
    if not all(values):
        raise InputError(f"{option} {text} has an empty value between its commas")
    if len(values) > MOST_VALUES:
        raise InputError(f"{option} takes at most {MOST_VALUES} values, got {len(values)}; leave some out")
    return name, tuple(dict.fromkeys(values))


def _range(text: str, wanted: str) -> list[str]:
    first, _, last = (part.strip() for part in wanted.partition(".."))
    try:
        low, high = int(first), int(last)
    except ValueError:
        raise InputError(f"--sweep wants two integers around '..', for example batch=1..16; got {text!r}") from None
    if low > high or low < 0:
        raise InputError(f"--sweep wants a range that grows from 0 or more, for example batch=1..16; got {text!r}")
    if high - low < EVERY_INTEGER_UP_TO:
        return [str(value) for value in range(low, high + 1)]
    values, value = [], low
    while value < high:
        values.append(str(value))
        value = max(1, value * 2)
    return [*values, str(high)]


def parse_promise(keep: str) -> str:
    """What ``--keep`` asks for."""
    from oomproof.sources.job import PROMISES

    kept = PROMISES[: PROMISES.index("different")]
    if keep in kept:
        return keep
    hint = "; --allow names what may become another training" if keep in PROMISES else ""
    raise InputError(f"--keep must be {' or '.join(kept)}; got {keep!r}{hint}")


def parse_names(texts: Sequence[str], option: str, example: str) -> tuple[str, ...]:
    """
    >>> parse_names(["image_size, backbone", "model"], "--allow", "image_size")
    ('image_size', 'backbone', 'model')
    """
    parts = [part.strip() for text in texts for part in text.split(",")]
    if not all(parts):
        raise InputError(
            f"{option} wants names with commas between them, for example {option} {example}; got an empty one"
        )
    return tuple(dict.fromkeys(parts))


def require_writable(path: Path, option: str) -> None:
    """Said before the trace or the search, not minutes later."""
    if is_folder(path):
        raise InputError(f"{option} wants a file, but {path} is a folder")
    try:
        folder = find_place(path).parent
    except OSError as error:
        raise InputError(f"{option} cannot write {path}: {error.strerror}; name another file") from None
    if not is_folder(folder):
        raise InputError(f"{option} cannot write {path}: there is no folder {folder}{hint_at_home(path)}")
    if is_there(path) and _read_only(path):
        raise InputError(f"{option} cannot write {path}: the file is read-only; name another one")
    if _read_only(folder):
        raise InputError(f"{option} cannot write {path}: the folder {folder} is read-only; name a file elsewhere")


def _read_only(path: Path) -> bool:
    """Root may write what is marked read-only, but somebody marked it."""
    return not os.access(path, os.W_OK) or not path.stat().st_mode & 0o222


def _read(file: Path | None) -> Mapping[str, Any]:
    if file is None:
        return {}
    from oomproof.changes.settings_file import read_settings

    return read_settings(file)
