"""Trainings whose batches are all alike: a dataset adds nothing on the device, but takes a share of the host's RAM."""

from __future__ import annotations

from dataclasses import replace

from oomproof.data.annotations.dataset import Dataset
from oomproof.data.annotations.in_ram import find_host_data
from oomproof.memory.batch_rule import BatchRule
from oomproof.memory.timeline import Timeline


def with_same_batches(step: Timeline, dataset: Dataset, rule: BatchRule) -> Timeline:
    """The step, with the dataset's share of the host's RAM, and a note that no batch is worse than another."""
    told = f"all batches of {dataset.path} need the same on the device: {rule.words}"
    about = replace(step.about, dataset=find_host_data(dataset).as_mapping(), notes=(*step.about.notes, told))
    return replace(step, about=about)
