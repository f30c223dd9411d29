"""A plan's changes to a Keras model, as code: the tracer traces it, the user's training runs it. Imports Keras.

from oomproof.run.keras import apply, batches

model = apply(model, "model.oomproof.json")      # compiled as before, with what the plan changes
model.fit(batches(dataset, "model.oomproof.json"))
"""

from oomproof.frameworks.side_by_side import before_tensorflow

before_tensorflow()  # which the files below import with Keras

from oomproof.changes.keras.applying import apply  # noqa: E402
from oomproof.changes.keras.batches import batches  # noqa: E402
from oomproof.changes.keras.slim import slim  # noqa: E402

__all__ = ["apply", "batches", "slim"]
