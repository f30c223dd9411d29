"""``keras:NAME``, ``keras_hub:NAME``, saved models, and compiled models in Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from oomproof.sources.keras.installed import is_model, use_backend
from oomproof.sources.source import Opening, Source

if TYPE_CHECKING:
    from oomproof.sources.job import Job

_NAMES, _FILES = ("keras:", "keras_hub:"), (".keras", ".h5", ".hdf5")


def _recognises(text: str) -> bool:
    return (text.startswith(_NAMES) and not text.endswith(":")) or text.endswith(_FILES)


def _open(opening: Opening) -> Job:
    if opening.given.get("backend"):
        use_backend(opening.given["backend"])
    kind, _, name = opening.text.partition(":")
    if kind == "keras":
        from oomproof.sources.keras.models import open_application

        return open_application(name)
    if kind == "keras_hub":
        from oomproof.sources.keras.hub import open_hub

        return open_hub(name)
    from oomproof.sources.keras.files import open_saved_model

    return open_saved_model(Path(opening.text))


def _adopts(given: Any) -> Job | None:
    if not is_model(given):
        return None
    from oomproof.sources.keras.job import KerasJob

    return KerasJob(given, name=given.name)


SOURCE = Source(
    name="Keras",
    forms=("keras:NAME", "keras_hub:NAME", "a saved FILE.keras"),
    about="a model of keras.applications or KerasHub, or a model in a file",
    recognises=_recognises,
    open=_open,
    adopts=_adopts,
)
