"""The images that a validation needs the most for: results are drawn at the size that images are stored in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oomproof.data.annotations.dataset import Dataset
from oomproof.epoch.images import see_images
from oomproof.memory.batch_spec import BatchSpec
from oomproof.memory.settings import Settings
from oomproof.memory.validation import Validation
from oomproof.sources.job import Job


def find_largest(job: Job, dataset: Dataset, settings: Settings, how: Validation) -> BatchSpec:
    """As many as a validation has in a batch: one, where the job does not say."""
    rule = job.validation_rule(settings)
    images = see_images(dataset, rule)
    count = how.batch or rule.images
    if rule.evaluates_stored:
        images = replace(images, rule=replace(rule, by_network=True))
    stored = images.stored_heights * images.stored_widths
    return images.spec(np.argsort(-stored, kind="stable")[:count].tolist())
