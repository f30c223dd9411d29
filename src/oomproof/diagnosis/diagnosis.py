"""The answer to «why didn't it fit?», as data.

>>> import oomproof
>>> oomproof.explain("Shuffle buffer filled.\\nKilled").cause
'host_shuffle_buffer'
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

CAUSES = (
    "batch_too_big",
    "model_or_image_too_big",
    "gt_boxes",
    "variable_shape",
    "eval_postprocess",
    "eval_no_grad",
    "leak",
    "checkpoint_on_gpu",
    "other_process",
    "fragmentation",
    "cudnn_workspace",
    "tf_greedy_allocation",
    "tf_memory_cap",
    "masked_oom",
    "train_and_eval_together",
    "retracing",
    "mps_limit",
    "xla_compile",
    "host_workers",
    "host_shuffle_buffer",
    "host_image_cache",
    "host_generators",
    "host_masks",
    "host_whole_dataset",
    "host_eval_results",
    "host_too_small",
    "container_limit",
    "shm_too_small",
    "outlier_or_bug",
    "benign_warning",
    "not_memory",
    "unknown",
)
"""the ids a Diagnosis may have; a stable contract, as docs/explain.md says what each means"""


@dataclass(frozen=True)
class Cause:
    """One explanation. ``confidence`` is between 0 and 1 and compares the causes of one log; it is not a frequency."""

    id: str
    confidence: float
    verdict: str
    why: str
    evidence: tuple[str, ...] = ()
    next: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """``causes`` are ranked, the first is ``cause``; ``facts`` are the numbers of the log, in bytes.

    ``alternatives`` are the ids of causes that the log does not tell from ``cause``; empty where it decides.
    """

    verdict: str
    why: str
    next: str
    cause: str
    causes: tuple[Cause, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    alternatives: tuple[str, ...] = ()

    @property
    def is_memory(self) -> bool:
        """Whether memory ran out (False: a warning, another error, or no word about it)."""
        return self.cause not in ("benign_warning", "not_memory") and self.facts.get("family") is not None
