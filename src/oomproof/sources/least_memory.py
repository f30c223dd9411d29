"""What a step takes at least, where that depends on the data: the lower figure of detectors.

Heads are traced with as many regions of objects as they have room for, and images with as many objects as COCO's most
crowded one where nobody has said how many there are. On sparse data a step may take half of that.
"""

from __future__ import annotations

from dataclasses import replace

from oomproof.errors import JobError
from oomproof.memory.batch_spec import MOST_OBJECTS
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import Job
from oomproof.trace.request import TraceRequest, be_silent

FEWEST_OBJECTS = 1
"""in an image, where nobody has said how many: trainings drop images without any"""
SPARSE = "the lower figure is that of sparse data: samplers which find nothing beyond the annotated boxes"
FULL_ALONE = "samplers are taken as full: on sparse data a step takes less, also less than the lower figure"


def with_least(job: Job, request: TraceRequest, step: Timeline) -> Timeline:
    """The step, which was traced for ``request``, with its least peak beside it: traced once more, where it differs."""
    if request.sparse or step.about.least or not _depends_on_data(request, step):
        return step
    request.progress("tracing the step on sparse data")
    sparse = replace(request, settings=_fewest(request), sparse=True, progress=be_silent)
    try:
        found = job.trace(sparse).peak().bytes
    except JobError:  # a job's own heads may not do with so little
        return replace(step, about=replace(step.about, notes=(*step.about.notes, FULL_ALONE)))
    notes = (*step.about.notes, SPARSE) if step.about.full_samplers else step.about.notes
    return replace(step, about=replace(step.about, notes=notes, least=max(1, found)))


def _depends_on_data(request: TraceRequest, step: Timeline) -> bool:
    return step.about.full_samplers or (step.about.framework.startswith("torch ") and _assumes_objects(request))


def _assumes_objects(request: TraceRequest) -> bool:
    """Whether the objects in an image are nobody's word but the default's."""
    return request.batch is None and request.validation is None and request.settings.of("boxes") == MOST_OBJECTS


def _fewest(request: TraceRequest) -> Settings:
    if not _assumes_objects(request):
        return request.settings
    return request.settings.with_values({request.settings.name_of("boxes"): FEWEST_OBJECTS})
