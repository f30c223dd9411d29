"""A training command's own flags: the batch is halved, and accumulation doubled where the script can do it.

>>> smaller(["python", "train.py", "--batch-size", "16", "--accumulate", "1"]).command[3:]
['8', '--accumulate', '2']
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from oomproof.files.regular import read_regular

BATCH = (
    "--batch-size", "--batch_size", "--batch", "-b", "--bs", "--train-batch-size", "--train_batch_size",
    "--per-device-train-batch-size", "--per_device_train_batch_size", "--images-per-batch", "--images_per_batch",
    "SOLVER.IMS_PER_BATCH", "batch_size", "batch", "train.batch_size", "data.batch_size",
)  # fmt: skip
ACCUMULATE = (
    "--accumulate", "--accumulation-steps", "--accumulation_steps", "--gradient-accumulation-steps",
    "--gradient_accumulation_steps", "--grad-accum", "--grad_accum", "--grad-accum-steps", "--grad_accum_steps",
    "--accum-iter", "--accum_iter", "--accum-steps", "--accum_steps", "--accumulate-grad-batches",
    "--accumulate_grad_batches",
)  # fmt: skip
WORKERS = ("--workers", "-j", "--num-workers", "--num_workers", "--dataloader-num-workers", "DATALOADER.NUM_WORKERS")
_NAMED = re.compile(r"""["'](--[\w-]+)["']""")
_LARGEST_SCRIPT = 4 << 20


@dataclass(frozen=True)
class Next:
    """A command to try next, and what a person should know about it."""

    command: list[str]
    says: str
    same_batch: bool
    """whether an update still has as many images as it had"""


Known = Mapping[str, int | None]
"""a script's flags, each with its default where that is a whole number in the code"""


def flags_of_script(command: Sequence[str]) -> Known:
    """Flags that the command's own Python file names."""
    found: dict[str, int | None] = {}
    for word in command:
        if Path(word).suffix == ".py":
            text = _read(word)
            found |= dict.fromkeys(_NAMED.findall(text)) | _defaults(text)
    return found


def _read(script: str) -> str:
    """Empty where it cannot be read: the command itself will say so."""
    try:
        return read_regular(script, _LARGEST_SCRIPT).decode(errors="replace")
    except OSError:
        return ""


def _defaults(text: str) -> dict[str, int]:
    """Of calls such as ``add_argument("--accumulate", type=int, default=4)``, argparse's and click's."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    found: dict[str, int] = {}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            names = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            default = next((each.value for each in call.keywords if each.arg == "default"), None)
            if isinstance(default, ast.Constant) and type(default.value) is int:
                found |= {name: default.value for name in names if name.startswith("-")}
    return found


def smaller(
    command: Sequence[str],
    known: Known | None = None,
    batch: str = "",
    accumulate: str = "",
    first: Sequence[str] = (),
) -> Next | None:
    """The command with half the batch. ``known``: flags that the script has though the command does not use them;
    ``batch`` and ``accumulate``: their names, where they are not the usual ones. ``first``: the command as the user
    gave it, whose images an update are what a training with fewer is told against. None: nothing can be halved."""
    known = known or {}
    place = _find(command, (batch,) if batch else BATCH)
    if place is None:
        command, place = _with_default(command, known, (batch,) if batch else BATCH)
    if place is None:
        return None
    now = _value(command, place)
    if now is None or now < 2:
        return None
    less = (now + 1) // 2
    changed = _with(command, place, less)
    name = _name(command[place])
    steps_at = _find(command, (accumulate,) if accumulate else ACCUMULATE)
    steps = _value(command, steps_at) if steps_at is not None else None
    if now % 2 == 0 and steps_at is not None and steps is not None:
        changed = _with(changed, steps_at, 2 * steps)
        says = f"{name} {now} -> {less}, {_name(command[steps_at])} {steps} -> {2 * steps}: as many images an update"
        return Next(changed, says, True)
    unused = next((flag for flag in ((accumulate,) if accumulate else ACCUMULATE) if flag in known), "")
    usual = known.get(unused)
    if now % 2 == 0 and steps_at is None and usual is not None and usual > 0:
        says = f"{name} {now} -> {less}, {unused} {2 * usual}: as many images an update"
        return Next([*changed, unused, str(2 * usual)], says, True)
    times = f" FOR EACH ONE OF {_name(command[steps_at])} {steps}" if steps is not None and steps_at is not None else ""
    if now % 2:
        why = f"{now} cannot be halved"
    elif steps_at is not None:
        why = f"the value of {_name(command[steps_at])} is not a whole number"
    elif unused:
        why = f"what {unused} is by default cannot be read in the script: give it on the command line"
    else:
        why = "the command has no flag for accumulation (--accumulate-flag names one)"
    was = now if times or not first else _first_value(first, name, known) or now
    says = (
        f"{name} {now} -> {less}: AN UPDATE NOW HAS {less} IMAGES, NOT {was}{times}, since {why}: another training; "
        "its learning rate may have to change"
    )
    return Next(changed, says, False)


def _first_value(first: Sequence[str], name: str, known: Known) -> int | None:
    place = _find(first, (name,))
    return known.get(name) if place is None else _value(first, place)


def _with_default(command: Sequence[str], known: Known, names: Collection[str]) -> tuple[Sequence[str], int | None]:
    """The command with what the script takes for the batch by itself, and its place."""
    name = next((each for each in names if known.get(each) is not None), None)
    return (command, None) if name is None else ([*command, name, str(known[name])], len(command))


def fewer_workers(command: Sequence[str]) -> Next | None:
    """Half the data workers, for when the host's memory ran out."""
    place = _find(command, WORKERS)
    now = _value(command, place) if place is not None else None
    if place is None or now is None or now < 1:
        return None
    says = f"{_name(command[place])} {now} -> {now // 2}: the same training, data may come slower"
    return Next(_with(command, place, now // 2), says, True)


def apply_plan(command: Sequence[str], batch: int | None, accumulate: int | None, known: Known) -> Next | None:
    """The command with a plan's numbers, where it has flags for them."""
    place = _find(command, BATCH)
    if place is None or batch is None:
        return None
    changed = _with(command, place, batch)
    says = f"{_name(command[place])} {batch}, as planned"
    if accumulate is not None and accumulate > 1:
        steps_at = _find(command, ACCUMULATE)
        unused = next((flag for flag in ACCUMULATE if flag in known), None)
        if steps_at is not None:
            changed = _with(changed, steps_at, accumulate)
        elif unused is not None:
            changed = [*changed, unused, str(accumulate)]
        else:
            return None  # half a plan is another training
        says += f", {accumulate} micro-batches an update"
    return Next(changed, says, True) if changed != list(command) else None


def _find(command: Sequence[str], names: Collection[str]) -> int | None:
    """The last one wins, as it does for argparse."""
    found = [place for place, word in enumerate(command) if _name(word) in names]
    return found[-1] if found else None


def _name(word: str) -> str:
    return word.partition("=")[0]


def _value(command: Sequence[str], place: int) -> int | None:
    _, equals, text = command[place].partition("=")
    if not equals:
        text = command[place + 1] if place + 1 < len(command) else ""
    return int(text) if text.isdecimal() else None


def _with(command: Sequence[str], place: int, value: int) -> list[str]:
    changed = list(command)
    if "=" in changed[place]:
        changed[place] = f"{_name(changed[place])}={value}"
    else:
        changed[place + 1] = str(value)
    return changed
