"""The first trace of a plan, which says what the job's knobs are: the step as it is, or one with fewer images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.memory.timeline import Timeline
from oomproof.plan.tracing import Tracing
from oomproof.sources.job import batch_name, sharing
from oomproof.trace.patience import AsksForMore

SMALL = 2
"""images on a GPU in the trace from which larger batches are estimated"""
SOME = 8
"""images on a GPU with which a step is traced as it is, whatever it asks for"""
FEW_ASKED = 30
"""values that a step with more images may ask for to be traced as it is at once"""


def first_trace(tracing: Tracing, settings: Mapping[str, Any]) -> Timeline:
    """Of the step as it is, so that a plan for a step that asks for few values need not trace another one. Detectors
    with many images (they have a setting for boxes) begin small, and so does what turns out to be like them."""
    small = small_settings(settings)
    images = int(settings.get(batch_name(settings), 1))
    if small == settings or images <= SOME * sharing(settings):
        return tracing.trace(settings, "tracing the step as it is")[0]
    if "boxes" not in settings:
        try:
            return tracing.trace(settings, "tracing the step as it is", most_asked=FEW_ASKED)[0]
        except AsksForMore:
            pass
    return tracing.trace(small, "tracing a small step")[0]


def small_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """For a trace with few images, one micro-batch of them."""
    name = batch_name(settings)
    if not name or "accumulate" not in settings:
        return dict(settings)
    return at_images(settings, name, min(SMALL * sharing(settings), settings[name]))


def at_images(settings: Mapping[str, Any], name: str, images: int) -> dict[str, Any]:
    return {**settings, name: images, "accumulate": 1}
