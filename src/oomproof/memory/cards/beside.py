"""Two jobs on one GPU: what another holds is not there for this one."""

from __future__ import annotations

from dataclasses import replace

from oomproof.errors import InputError
from oomproof.memory.cards.devices import AMOUNT, UNITS, Device

ANOTHER = "another job"


def hold_beside(device: Device, given: str | int | None) -> Device:
    """The device with ``given`` bytes (``3GiB``) of it held by another job, as nvidia-smi shows it: its context counts.

    >>> from oomproof.memory.cards.devices import find_device
    >>> hold_beside(find_device("8GiB"), "3GiB").budget >> 30
    5
    """
    if given is None:
        return device
    amount = AMOUNT.fullmatch(given.strip().lower()) if isinstance(given, str) else None
    if amount and amount[2] in UNITS:
        size = float(amount[1]) * UNITS[amount[2]]
    elif isinstance(given, int) and not isinstance(given, bool):
        size = float(given)
    else:
        raise InputError(f"beside={given}: expected what the other job holds, such as 3GiB")
    if not 0 <= size < device.total:
        raise InputError(
            f"beside={given}: expected a size from 0 to below the {device.total / 2**30:.2f} GiB of {device.name}"
        )
    held_by = (*device.held_by, f"{ANOTHER} ({size / 2**30:.2f} GiB)") if size else device.held_by
    return replace(device, held=device.held + int(size), held_by=held_by)
