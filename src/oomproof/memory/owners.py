"""Modules as a person thinks of them: stages, split only as far as a short list allows."""

from __future__ import annotations

from collections.abc import Mapping

SHOWN = 14
_SLIGHT = 0.01
_DEEPEST = 12


def stages(by_owner: Mapping[str, int], limit: int = SHOWN) -> tuple[tuple[str, int], ...]:
    """Bytes by module path, largest first, with at most ``limit`` groups of any weight.

    The tree of modules is opened level by level while the list stays short, then the fullest modules one by one. So
    ``backbone.body`` and ``roi_heads.mask_head`` are told apart, and the two hundred layers below them are not listed.
    """
    total = sum(by_owner.values())

    def weighty(groups: Mapping[str, int]) -> int:
        return sum(1 for size in groups.values() if size >= _SLIGHT * total)

    groups = _group_owners(by_owner, 1)
    for depth in range(2, _DEEPEST):
        finer = _group_owners(by_owner, depth)
        if weighty(finer) <= limit:
            groups = finer
            continue
        for path in sorted(groups, key=lambda each: -groups[each]):
            parts = _group_owners({owner: size for owner, size in by_owner.items() if _within(owner, path)}, depth)
            opened = {**{each: size for each, size in groups.items() if each != path}, **parts}
            if weighty(opened) <= limit:
                groups = opened
        break
    return tuple(sorted(groups.items(), key=lambda item: -item[1]))


def _group_owners(by_owner: Mapping[str, int], depth: int) -> dict[str, int]:
    sums: dict[str, int] = {}
    for owner, size in by_owner.items():
        # A snapshot's owners are lines of code (train.py:59 forward), whose dots part nothing.
        path = owner if ":" in owner else ".".join(owner.split(".")[:depth])
        sums[path] = sums.get(path, 0) + size
    return sums


def _within(owner: str, path: str) -> bool:
    return owner == path or owner.startswith(f"{path}.")
