"""A source: which texts name its jobs, and how they are opened.

A package adds its own with an entry point of the group ``oomproof.sources`` that leads to a Source:

    [project.entry-points."oomproof.sources"]
    mmdetection = "oomproof_mmdetection:SOURCE"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oomproof.sources.job import Job


GROUP = "oomproof.sources"


@dataclass(frozen=True)
class Opening:
    """What a job is opened with."""

    text: str
    pairs: Sequence[str] = ()
    """KEY, VALUE, KEY, VALUE ... that stand behind the job"""
    given: Mapping[str, Any] = field(default_factory=dict)
    """settings that the user gives, for those that have to be known before a job is loaded"""
    config_file: str = ""
    """the file that a training script reads, where only its command line says which"""


@dataclass(frozen=True)
class Source:
    """Importing the module that holds one loads no framework."""

    name: str
    forms: tuple[str, ...]
    """what its jobs look like, for the help: ``torchvision:NAME``"""
    about: str
    """one line for the help"""
    recognises: Callable[[str], bool]
    """whether a text names one of its jobs; looks at files, and opens nothing else"""
    open: Callable[[Opening], Job]
    takes_pairs: bool = False
    """KEY VALUE behind the job, as the framework's own tools take them"""
    takes_config_file: bool = False
    """its scripts may read a config file that only their command line names"""
    adopts: Callable[[Any], Job | None] = lambda given: None
    """a job made of an object of Python that is not one yet; None where it is of another kind"""
