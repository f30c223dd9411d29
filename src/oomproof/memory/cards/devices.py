"""The devices people train on: a GPU by its name, the one in this machine, or a plain amount of memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from oomproof.errors import InputError, near
from oomproof.memory.cards import this_machine
from oomproof.memory.cards.device_table import ARCHITECTURES, ROWS, DeviceRow
from oomproof.memory.cards.kept_constants import read_constants


@dataclass(frozen=True)
class Device:
    """A GPU, or a plain amount of memory. ``held`` is what other processes hold on it now."""

    name: str
    total: int
    """bytes as CUDA reports them: a little less than the size on the box"""
    architecture: str = ""
    """maxwell, pascal, volta, turing, ampere, ada, hopper, blackwell; empty for a plain size"""
    capability: tuple[int, int] = (0, 0)
    """CUDA compute capability"""
    tflops: float = 0.0
    """peak fp32 arithmetic, 10^12 operations a second"""
    half_tflops: float = 0.0
    """peak dense fp16 arithmetic with fp32 accumulation, tensor cores where there are any"""
    bandwidth: float = 0.0
    """memory bandwidth in 10^9 bytes a second"""
    held: int = 0
    held_by: tuple[str, ...] = ()
    context: int = 0
    """bytes of the CUDA context as measured on this machine; 0: not measured"""
    workspace: int | None = None
    """bytes that libraries keep in the allocator, as measured on this machine"""

    @property
    def budget(self) -> int:
        return max(0, self.total - self.held)


MIN_SIZE, MAX_SIZE = 64 << 20, 10 << 40
UNITS = {
    **dict.fromkeys(("b", "byte", "bytes"), 1),
    **dict.fromkeys(("m", "mib"), 1 << 20),
    **dict.fromkeys(("g", "gib"), 1 << 30),
    **dict.fromkeys(("t", "tib"), 1 << 40),
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
NOISE = re.compile(
    r"nvidia|geforce|quadro|tesla|generation|(?<!titan[\s_-])rtx|gtx|gpu|graphics|card"
    r"|(with )?max-?q( design)?|sxm\d?|hbm\d?e?"
)
"""what may stand in a GPU's name or not (a TITAN RTX is another GPU than a TITAN)"""
AMOUNT = re.compile(r"([+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|\.\d+|nan|inf(?:inity)?))\s*([a-z]*)")


def find_device(text: str) -> Device:
    """The device a user means.

    A GPU's name in any spelling (``3060``, ``rtx 3060 12gb``, ``A100-80GB``); of two sizes the usual one, unless one
    is said. Or an amount of memory: ``8GiB`` and ``8g`` are 8 * 2^30 bytes, ``8GB`` is 8 * 10^9. Or ``this``: the GPU
    of this machine with the most free memory, ``this:1`` the one that nvidia-smi calls 1.

    >>> find_device("rtx3060 12gb").name, find_device("a100 80").total
    ('RTX 3060 12GB', 84975927951)
    """
    wanted = text.strip().lower()
    if wanted == "this" or wanted.startswith("this:"):
        return _this(wanted)
    row = _row(wanted)
    if row is not None:
        return _device(row)
    amount = AMOUNT.fullmatch(wanted)
    if amount and amount[2] in UNITS:
        return _amount(text, float(amount[1]) * UNITS[amount[2]])
    names = {_key(name): name for name in map(_name, ROWS)}
    like = ", ".join(names[key] for key in near(_key(wanted[:60]), names))
    like = like and f" (like {like})"
    if amount and not amount[2]:
        meant = f"{amount[1]}{_likely_unit(float(amount[1]))}"
        raise InputError(
            f"{_short(text)} is not a known GPU{like}, and a size needs a unit (GiB, GB, MiB or MB); did you mean "
            f"{meant}?"
        )
    raise InputError(
        f"no GPU is known as {_short(text)}: expected a name{like}, a size such as 8GiB, or `this`; "
        "`oomproof gpus` lists all names"
    )


def _likely_unit(number: float) -> str:
    """Cards have up to a few hundred GiB."""
    return "GiB" if number < 512 else "MiB"


def list_devices() -> tuple[Device, ...]:
    """Every GPU of the table."""
    return tuple(_device(row) for row in ROWS)


def is_estimated(device: Device) -> bool:
    """Whether a known device's ``total`` is estimated from its family, not as out-of-memory messages show it."""
    return any(row.estimated and _name(row) == device.name for row in ROWS)


def _row(wanted: str) -> DeviceRow | None:
    """The row that is meant; an error where the GPU is known but not in the size said."""
    rows, size = _rows(wanted), None
    said = re.search(r"(?<![\d.])(\d{1,3})\s*g(?:i?b)?\b", wanted) or re.search(r"(?<=[\s_-])(\d{1,3})$", wanted)
    if not rows and said:
        rows, size = _rows(wanted[: said.start()] + wanted[said.end() :]), int(said[1])
    if not rows:
        return None
    fitting = [row for row in rows if size in (None, row.gigabytes)]
    if not fitting:
        sizes = " or ".join(f"{row.gigabytes} GB" for row in rows)
        raise InputError(f"the {rows[0].name} comes with {sizes}; {size} GB was asked for")
    return fitting[0]


def _rows(name: str) -> list[DeviceRow]:
    key = _key(name)
    rows = [row for row in ROWS if _key(row.name) == key]
    return rows or [row for row in ROWS if key.endswith("pcie") and _key(row.name) == key.removesuffix("pcie")]


def _key(name: str) -> str:
    words = NOISE.sub(" ", name.lower().replace("mobile", "laptop"))
    return re.sub(r"[^a-z0-9]", "", words)


def _name(row: DeviceRow) -> str:
    several = sum(other.name == row.name for other in ROWS) > 1
    return f"{row.name} {row.gigabytes}GB" if several else row.name


def _device(row: DeviceRow) -> Device:
    return Device(
        name=_name(row),
        total=int(row.total * 2**30),
        architecture=ARCHITECTURES[row.capability],
        capability=row.capability,
        tflops=row.tflops,
        half_tflops=row.half_tflops,
        bandwidth=row.bandwidth,
    )


def _amount(text: str, size: float) -> Device:
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise InputError(f"{_short(text)}: expected a size from 64 MiB to 10 TiB, such as 8GiB")
    return Device(name=f"{size / 2**30:.2f} GiB", total=int(size))


def _this(wanted: str) -> Device:
    index = wanted.removeprefix("this").removeprefix(":")
    if index and not index.isdecimal():
        raise InputError(f"expected `this` or `this:` and a number, such as this:0; got {_short(wanted)}")
    gpus = this_machine.gpus()
    if index and int(index) >= len(gpus):
        raise InputError(f"this machine has {len(gpus)} NVIDIA GPU(s), numbered from 0; {wanted} was asked for")
    gpu = gpus[int(index)] if index else max(gpus, key=lambda gpu: gpu.total - gpu.held)
    rows = _rows(re.sub(r"\d+\s*gb", "", gpu.name.lower()))
    like = min(rows, key=lambda row: abs(row.total * 2**30 - gpu.total), default=None)
    found = Device(name=gpu.name, total=gpu.total, architecture=ARCHITECTURES.get(gpu.capability, ""))
    if like is not None:
        found = replace(_device(like), name=gpu.name, total=gpu.total)
    found = replace(found, capability=gpu.capability, held=gpu.held, held_by=gpu.held_by)
    kept = read_constants().get(gpu.name)
    return found if kept is None else replace(found, context=kept.context, workspace=kept.workspace)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
