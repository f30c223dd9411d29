"""Which owners of memory go with boxes rather than with images: told by the names that detectors give their parts.

torchvision and Detectron2 call their heads ``roi_heads``; torchvision calls its proposal network ``rpn``.
"""

from __future__ import annotations

from oomproof.memory.timeline import Timeline

_HEADS, _PROPOSALS = "roi_heads", "rpn"


def find_per_box(timeline: Timeline) -> frozenset[str]:
    """Owners and modules that see boxes in dimension 0, however many pixels an image has."""
    paths = (*timeline.owners, *(call.path for call in timeline.modules))
    return frozenset(path for path in paths if _HEADS in path)


def find_matchers(timeline: Timeline, model: str) -> frozenset[str]:
    """Owners that match anchors with boxes, image by image: the detector itself, its proposal network and its heads,
    not their layers."""
    return frozenset(timeline.owners) & {_PROPOSALS, _HEADS, model}
