"""All that oomproof uses of torchvision beyond its documented interface. Made for torchvision 0.19 to 0.29."""

from __future__ import annotations

from oomproof.frameworks.versions import TORCHVISION

with TORCHVISION.names_needed():
    from torchvision.models.detection._utils import Matcher, SSDMatcher  # which anchors belong to which boxes

__all__ = ["Matcher", "SSDMatcher"]
