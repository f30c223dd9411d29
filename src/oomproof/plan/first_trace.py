"""The first trace of a plan, which says what the job's knobs are: the step as it is, or one with fewer images."""

from __future__ import annotations

from oomproof.memory.timeline import Timeline
from oomproof.plan.problem import SMALL, at_images
from oomproof.plan.tracing import Tracing
from oomproof.sources.job import Settings
from oomproof.trace.request import TooManyValues

SOME = 8
"""images on a GPU with which a step is traced as it is, whatever it asks for"""
FEW_ASKED = 30
"""values that a step with more images may ask for to be traced as it is at once"""


def first_trace(tracing: Tracing, settings: Settings) -> Timeline:
    """Of the step as it is, so that a plan for a step that asks for few values need not trace another one. Detectors
    with many images (they have a setting for boxes) begin small, and so does what turns out to be like them."""
    small = small_settings(settings)
    if small == settings or settings.images <= SOME * settings.sharing:
        return tracing.trace(settings, "tracing the step as it is")[0]
    if not settings.name_of("boxes"):
        try:
            return tracing.trace(settings, "tracing the step as it is", patience=FEW_ASKED)[0]
        except TooManyValues:
            pass
    return tracing.trace(small, "tracing a small step")[0]


def small_settings(settings: Settings) -> Settings:
    """For a trace with few images, one micro-batch of them."""
    name = settings.name_of("batch")
    if not name or "accumulate" not in settings:
        return settings
    return at_images(settings, name, min(SMALL * settings.sharing, settings[name]))
