"""Whether columns and names from a file make a Timeline that everything else can rely on."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from oomproof.memory.about import about_from_header
from oomproof.memory.timeline import KINDS, PHASES, Calls, Ints, Timeline

BLOCKS = ("born", "died", "bytes", "kind", "phase", "owner", "op")
CALLS = ("call_tick", "call_owner", "call_phase", "call_spec")
MARKS = ("mark_tick", "mark_phase")
SHAPE = "shape"
"""a block's; files of older versions have none"""
MOST_SIDES = 64
"""of a tensor; PyTorch and NumPy have no more"""

ABOUT = {
    "job": str,
    "settings": dict,
    "dialect": str,
    "threads": int,
    "not_counted": list,
    "notes": list,
    "batches_seen": str,
    "unseen": list,
    "allocator": str,
    "orders": dict,
    "on_host": int,
    "pipeline": int,
    "pipeline_high": int,
    "stacked_by_workers": bool,
    "dataset": dict,
    "framework": str,
    "limits": str,
    "arena": int,
    "full_samplers": bool,
    "least": int,
    "recorded": bool,
    "reserved": int,
    "device": int,
    "model": str,
    "optimizer": str,
    "precision": str,
    "before_steps": int,
    "validated": bool,
    "batchnorms": int,
    "widened": int,
    "widened_by": str,
    "separable": bool,
    "mean_over_images": bool,
    "matching": bool,
    "at_once": str,
    "blocks": int,
    "values_asked": dict,
    "per_box": list,
    "matchers": list,
    "details": dict,
    "roles": dict,
}
"""what others read of «about», and its type"""
MAX_BYTES = 1 << 60
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Wrong(Exception):
    """What was expected and what came."""


def clean_value(value: Any) -> Any:
    """The value as it can stand in JSON and on a terminal: no control characters, no half characters, no NaN."""
    if isinstance(value, str):
        return UNPRINTABLE.sub("?", value)
    if isinstance(value, Mapping):
        return {clean_value(str(key)): clean_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_value(item) for item in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def check_timeline(header: Mapping[str, Any], columns: Mapping[str, Ints]) -> Timeline:
    """The Timeline; Wrong says what is not as it must be."""
    if clean_value(header) != header:
        raise Wrong("expected plain text in the header; found control characters")
    owners, ops, specs = (_names(header, table) for table in ("owners", "ops", "specs"))
    about = header.get("about")
    if not isinstance(about, dict):
        raise Wrong("expected «about» to be an object; found none")
    _check_about(about)
    for group in (BLOCKS, CALLS, MARKS):
        if len({len(columns[name]) for name in group}) > 1:
            raise Wrong(f"expected columns of one length; found {', '.join(f'{n} {len(columns[n])}' for n in group)}")
    ticks = _ticks(header, columns)
    _check_ranges(columns, ticks, len(owners), len(ops), len(specs))
    for spec in specs:
        _check_spec(spec)
    return Timeline(
        born=columns["born"],
        died=columns["died"],
        bytes=columns["bytes"],
        kind=columns["kind"],
        phase=columns["phase"],
        owner=columns["owner"],
        op=columns["op"],
        owners=owners,
        ops=ops,
        calls=Calls(columns["call_tick"], columns["call_owner"], columns["call_phase"], columns["call_spec"], specs),
        mark_tick=columns["mark_tick"],
        mark_phase=columns["mark_phase"],
        ticks=ticks,
        about=about_from_header(about),
        **_read_shapes(header, columns),
    )


def _read_shapes(header: Mapping[str, Any], columns: Mapping[str, Ints]) -> dict[str, Any]:
    """The fields of the Timeline; none where the file has no shapes."""
    if SHAPE not in columns:
        return {}
    shapes, column = header.get("shapes"), columns[SHAPE]
    if not isinstance(shapes, list) or not all(each is None or _is_shape(each) for each in shapes):
        raise Wrong("expected «shapes» to be a list of lists of sizes; found another value")
    if len(column) != len(columns["born"]):
        raise Wrong(f"expected a shape of each of {len(columns['born'])} blocks; found {len(column)}")
    if len(column) and not 0 <= column.min() <= column.max() < len(shapes):
        raise Wrong(f"{SHAPE}: expected numbers from 0 to below {len(shapes)}; found {column.min()} to {column.max()}")
    return {"shape": column, "shapes": tuple(None if each is None else tuple(each) for each in shapes)}


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MOST_SIDES
        and all(type(side) is int and 0 <= side < MAX_BYTES for side in value)
    )


_BYTES = ("on_host", "pipeline", "pipeline_high", "arena", "reserved", "least", "before_steps")
_TEXTS = ("notes", "not_counted", "per_box", "matchers")
_WORDS = {
    "dialect": ("cpu", "cuda"), "allocator": ("cuda", "bfc"), "limits": ("tensorflow", "jax"),
    "at_once": ("", "any", "one"),
}  # fmt: skip


def _check_about(about: Mapping[str, Any]) -> None:
    for name, kind in ABOUT.items():
        if name in about and not isinstance(about[name], kind):
            raise Wrong(f"expected «{name}» to be of type {kind.__name__}; found {about[name]!r:.40}")
    for name, words in _WORDS.items():
        if about.get(name, words[0]) not in words:
            raise Wrong(f"expected «{name}» to be {' or '.join(words)}; found {about[name]!r:.40}")
    for name in _TEXTS:
        if not all(isinstance(each, str) for each in about.get(name, ())):
            raise Wrong(f"expected «{name}» to be a list of texts; found another value")
    if not all(isinstance(each, str) for each in about.get("roles", {}).values()):
        raise Wrong("expected «roles» to name settings; found another value")
    if not all(type(peak) is int and 0 <= peak < MAX_BYTES for peak in about.get("orders", {}).values()):
        raise Wrong("expected «orders» to have a number of bytes for each order; found another value")
    if not all(type(size) is int and 0 <= size < MAX_BYTES for size in about.get("dataset", {}).values()):
        raise Wrong("expected «dataset» to have a number of bytes for each form; found another value")
    if not all(0 <= about.get(name, 0) < MAX_BYTES for name in _BYTES):
        raise Wrong("expected bytes of host memory to be a number from 0 on; found another")


def _names(header: Mapping[str, Any], table: str) -> tuple[str, ...]:
    names = header.get(table)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Wrong(f"expected «{table}» to be a list of texts; found another value")
    return tuple(names)


def _ticks(header: Mapping[str, Any], columns: Mapping[str, Ints]) -> int:
    ticks = header.get("ticks")
    events = 2 * (len(columns["born"]) + len(columns["call_tick"]))
    # The curve takes 8 bytes a tick, so ticks without events could only serve to fill the memory.
    most = 4 * events + 1024
    if type(ticks) is not int or not 0 <= ticks <= most:
        raise Wrong(f"expected at most {most} ticks for {events} events; found {str(ticks)[:30]}")
    return ticks


def _check_ranges(columns: Mapping[str, Ints], ticks: int, owners: int, ops: int, specs: int) -> None:
    limits = {
        "born": ticks,
        "died": ticks + 1,
        "bytes": MAX_BYTES,
        "kind": len(KINDS),
        "phase": len(PHASES),
        "owner": owners,
        "op": ops,
        "call_tick": ticks - 1,  # a call owns two ticks
        "call_owner": owners,
        "call_phase": len(PHASES),
        "call_spec": specs,
        "mark_tick": ticks + 1,
        "mark_phase": len(PHASES),
    }
    for name, limit in limits.items():
        column = columns[name]
        if len(column) and not 0 <= column.min() <= column.max() < limit:
            raise Wrong(f"{name}: expected numbers from 0 to below {limit}; found {column.min()} to {column.max()}")
    if np.any(columns["born"] >= columns["died"]):
        raise Wrong("expected every block to be born before it dies; found one that is not")
    # In floating point, for the sum itself may not fit in 64 bits.
    if columns["bytes"].sum(dtype=np.float64) >= MAX_BYTES:
        raise Wrong(f"expected blocks of less than {MAX_BYTES >> 40} TiB together; found more")
    if np.any(np.diff(columns["mark_tick"]) < 0):
        raise Wrong("expected the phases in the order of their ticks; found another order")


def _check_spec(spec: str) -> None:
    parsed = json.loads(spec)
    if not isinstance(parsed, dict) or not isinstance(parsed.get("op"), str) or clean_value(parsed) != parsed:
        raise Wrong(f"expected a call to be an object with the text «op»; found {spec[:40]}")
