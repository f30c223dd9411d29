"""Modules as a person thinks of them: stages, split only where the bytes are."""

from __future__ import annotations

from collections.abc import Mapping

SHOWN = 14


def stages(by_owner: Mapping[str, int], limit: int = SHOWN) -> tuple[tuple[str, int], ...]:
    """Bytes by module path, largest first, in at most ``limit`` groups.

    Starts with the outermost modules and opens the fullest one, again and again, while the list stays short. So
    ``backbone.body`` and ``roi_heads.mask_head`` are told apart, and the two hundred layers below them are not listed.
    """
    groups = _grouped(by_owner, "")
    closed: set[str] = set()
    while len(groups) < limit:
        wide = [path for path in groups if path not in closed]
        if not wide:
            break
        path = max(wide, key=lambda each: groups[each])
        parts = _grouped({owner: size for owner, size in by_owner.items() if _within(owner, path)}, path)
        if parts.keys() == {path} or len(groups) + len(parts) - 1 > limit:
            closed.add(path)
            continue
        del groups[path]
        groups |= parts
    return tuple(sorted(groups.items(), key=lambda item: -item[1]))


def _grouped(by_owner: Mapping[str, int], below: str) -> dict[str, int]:
    """Sums one level further down than ``below``; what belongs to ``below`` itself keeps that name."""
    depth = below.count(".") + 2 if below else 1
    sums: dict[str, int] = {}
    for owner, size in by_owner.items():
        path = ".".join(owner.split(".")[:depth])
        sums[path] = sums.get(path, 0) + size
    return sums


def _within(owner: str, path: str) -> bool:
    return owner == path or owner.startswith(f"{path}.")
