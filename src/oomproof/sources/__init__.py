"""Where jobs come from: one folder per source, each with a ``source.py`` that says which texts it recognises.

May import memory/, data/, trace/ and changes/; frameworks only inside functions.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from oomproof.errors import InputError, OomproofError
from oomproof.sources.no_job import describe_no_job
from oomproof.sources.source import GROUP, Opening, Source

if TYPE_CHECKING:
    from oomproof.sources.job import Job

OURS = (
    "script",
    "detectron2",
    "torchvision",
    "timm",
    "ultralytics",
    "transformers",
    "tf_object_detection",
    "python",
    "keras",
    "saved",
)
"""asked in this order, those that know their own scripts before any Python file; then the sources of other packages"""


def open_job(
    text: str, pairs: Sequence[str] = (), given: Mapping[str, Any] | None = None, config_file: str = ""
) -> Job:
    """The job that a text names. ``pairs`` is KEY, VALUE, KEY, VALUE ... of a config; ``given`` are the settings that
    the user gives, some of which have to be known before a job is loaded (Keras's backend); ``config_file`` is the file
    that a training script reads."""
    source = next((each for each in list_sources() if each.recognises(text)), None)
    if source is None:
        raise InputError(describe_no_job(text, [form for each in list_sources() for form in each.forms]))
    if pairs and not source.takes_pairs:
        if all("=" in pair for pair in pairs):
            each_one = " ".join(f"--set {shlex.quote(pair)}" for pair in pairs)
            raise InputError(f"'{pairs[0]}' came without a --set of its own: expected {each_one}")
        takers = " and ".join(each.name for each in list_sources() if each.takes_pairs)
        raise InputError(
            f"'{pairs[0]}': pairs KEY VALUE after the job are for configs of {takers}; {text} takes --set NAME=VALUE"
        )
    if config_file and not source.takes_config_file:
        takers = " and ".join(each.name for each in list_sources() if each.takes_config_file)
        raise InputError(f"--config-file {config_file} is for training scripts of {takers}; {text} is not one")
    return source.open(Opening(text, tuple(pairs), dict(given or {}), config_file))


def as_job(given: Any, pairs: Sequence[str] = (), settings: Mapping[str, Any] | None = None) -> Job:
    """What ``oomproof.check`` and ``oomproof.fit`` are given: a text, a job, or what a source makes one of (a compiled
    Keras model)."""
    if isinstance(given, str):
        return open_job(given, pairs, settings)
    for source in list_sources():
        job = source.adopts(given)
        if job is not None:
            return job
    if not hasattr(given, "trace"):
        raise InputError(
            f"a {type(given).__name__} is not a job: expected a text such as 'torchvision:resnet50', a TorchJob, a "
            "KerasJob or a compiled Keras model"
        )
    opened: Job = given
    return opened


def describe_forms(*, others: bool) -> str:
    """What a job may look like, for the help; with what other packages bring, who take a moment to be looked for."""
    found = [*_our_sources(), *(_sources_of_others() if others else ())]
    return ". ".join(f"{', '.join(source.forms)}: {source.about}" for source in found) + "."


def list_sources() -> Iterator[Source]:
    """Ours, then those of other packages, which are looked for when none of ours will do."""
    yield from _our_sources()
    yield from _sources_of_others()


def _our_sources() -> Iterator[Source]:
    for name in OURS:
        source: Source = import_module(f"oomproof.sources.{name}.source").SOURCE
        yield source


@cache
def _sources_of_others() -> tuple[Source, ...]:
    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            source = entry.load()
        except Exception as error:  # whatever another package raises while it is loaded
            raise OomproofError(
                f"the source '{entry.name}' ({entry.value}) of another package cannot be loaded: "
                f"{type(error).__name__}: {error}; mend that package or uninstall it"
            ) from error
        if not isinstance(source, Source):
            raise OomproofError(
                f"the source '{entry.name}' ({entry.value}) must be an oomproof.Source; it is a "
                f"{type(source).__name__}: mend that package or uninstall it"
            )
        found.append(source)
    return tuple(found)
