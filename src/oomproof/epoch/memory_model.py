"""How a job's memory follows from its batch: a line in the features for each moment of the step, fitted to traces.

The peak is the largest of the moments. Which one that is changes from batch to batch (the matcher's where objects are
many, the first layers' backward pass where images are large), so that no single line would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from oomproof.epoch.features import Floats
from oomproof.epoch.moments import Moment

NEAR = 0.5
"""moments that come to less than this part of every traced peak are left out"""
MOST = 60
"""moments that are fitted; those that come nearest to a peak"""


@dataclass(frozen=True, eq=False)
class MemoryModel:
    weights: Floats
    """a row a moment, a column a feature; none is negative, so that more never needs less"""

    def predict(self, features: Floats) -> Floats:
        """Bytes of each batch."""
        found: Floats = (features @ self.weights.T).max(axis=1)
        return found


def fit_model(features: Floats, moments: Sequence[dict[Moment, int]]) -> MemoryModel:
    """From traced batches: their features (a row each) and their moments."""
    peaks = np.array([max(each.values()) for each in moments], dtype=float)
    names = sorted({name for each in moments for name in each})
    wholes = [_by_module(each) for each in moments]
    table = np.array(
        [
            [each.get(name, whole.get(name[:2], peak)) for name in names]
            for each, whole, peak in zip(moments, wholes, peaks, strict=True)
        ]
    )
    nearest = (table / peaks[:, None]).max(axis=0)
    kept = [at for at in np.argsort(-nearest, kind="stable")[:MOST] if nearest[at] >= NEAR]
    scale = features.max(axis=0)
    scale[scale == 0] = 1
    return MemoryModel(np.array([_line(features / scale, table[:, at]) / scale for at in kept]))


def _by_module(moments: dict[Moment, int]) -> dict[tuple[str, str], int]:
    """The most at any moment of a module in a phase. It stands for an operation that a batch happens not to have (no
    objects, no overlap): such a batch says of the operation that it needs no more than that."""
    found: dict[tuple[str, str], int] = {}
    for (phase, owner, _), nbytes in moments.items():
        found[phase, owner] = max(nbytes, found.get((phase, owner), 0))
    return found


def _line(features: Floats, live: Floats) -> Floats:
    """Least squares without negative weights. What weighs the same by all traces is told apart by a slight preference
    for small weights."""
    unit = live.max()
    few = 1e-4 * np.eye(features.shape[1])
    weights, _ = nnls(np.vstack([features, few]), np.concatenate([live / unit, np.zeros(len(few))]))
    found: Floats = weights * unit
    return found
