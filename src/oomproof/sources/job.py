"""What every source makes: a Job that knows its settings and its knobs, can be traced and can be written back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.batch_rule import BatchRule
from oomproof.memory.settings import Role, Settings
from oomproof.memory.timeline import Timeline
from oomproof.trace.request import Progress, TraceRequest

if TYPE_CHECKING:
    from oomproof.data.annotations.dataset import Dataset

__all__ = [
    "ASSUMED", "PROMISES", "SUFFIX", "Job", "Knob", "Option", "Progress", "ReadsData", "Role", "Setting", "Settings",
    "TraceRequest", "find_roles",
]  # fmt: skip

PROMISES = ("identical", "equivalent", "different")
"""What a change leaves of the training, the strictest first: the same gradients (proved by a test); the same in
expectation or up to rounding; another training."""

ASSUMED = "assumed"
"""the basis of a default that oomproof has made up, such as a usual batch"""

SUFFIX = ".oomproof.json"
"""of the file that settings are written to where a job has none of its own"""

OWN_WORDS: Mapping[str, Role] = {
    "batch": "batch", "accumulate": "accumulation", "image_size": "image size", "precision": "precision",
    "workers": "workers", "boxes": "boxes", "gpus": "gpus", "optimizer": "optimizer",
}  # fmt: skip
"""oomproof's own names for settings, and the roles that they play"""


@dataclass(frozen=True)
class Setting:
    """One thing about a job that may be set: ``--set NAME=VALUE``."""

    name: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    read: Callable[[Any], Any] | None = None
    """makes a value of what was given, where the default's type does not say how"""
    follows: Callable[[Mapping[str, Any]], Any] | None = None
    """works out the value from the other settings, where none is given"""
    own: bool = False
    """a parameter of the user's code: it means what the code means by it, even if every training has one of its name"""
    role: Role | None = None
    """what it stands for, where its name is not one of OWN_WORDS"""
    plays: bool = True
    """False: another setting plays the role that the name suggests"""
    basis: str = ""
    """where the default comes from, if not from the user: ``assumed``, ``the model's own``; told while it stands"""
    usual: tuple[Any, ...] = ()
    """other values that people ask about: a page offers them where the user names none"""
    given_as: str = ""
    """how the command line takes it, ``{value}`` in it; empty: ``--set NAME=VALUE``"""

    def as_option(self, value: str) -> str:
        """What a user adds to the command line for this value.

        >>> Setting("batch", 1, "", given_as="--batch {value}").as_option("8")
        '--batch 8'
        """
        return (self.given_as or f"--set {self.name}={{value}}").format(value=value)


def find_roles(settings: Iterable[Setting]) -> dict[Role, str]:
    """Which setting plays which role; the first that claims it."""
    found: dict[Role, str] = {}
    for setting in settings:
        role = setting.role or (OWN_WORDS.get(setting.name) if not setting.own else None)
        if role is not None and setting.plays:
            found.setdefault(role, setting.name)
    return found


@dataclass(frozen=True)
class Option:
    """One position of a knob: its value as a person would say it, and what it sets."""

    value: Any
    settings: Mapping[str, Any]
    harm: float = 0.0
    """orders options that make another training: 0 is none, 1 is as bad as it gets"""
    note: str = ""
    """what is known of its effect, such as a published AP"""
    promise: str = ""
    """where it is another than the knob's"""
    arithmetic: str = ""
    """``bf16`` or ``fp16``, where it computes in one: few devices suit both"""


@dataclass(frozen=True)
class Knob:
    """One thing that may change for the sake of memory, under the user's own name for it."""

    name: str
    options: tuple[Option, ...]
    """the present one first, the thriftiest last"""
    promise: str
    why: str
    """what the promise rests on, or what the knob costs, in a phrase"""
    host: bool = False
    """saves host RAM alone: turned where it is known how much there is"""
    role: Role | None = None
    """``batch``: its options say how a batch is cut into micro-batches; others as of settings"""


class Job:
    """One training job as its framework would run it: what sources share. A source's job has ``name``, ``settings`` and
    ``trace``; the rest has a usual form here."""

    if TYPE_CHECKING:  # most jobs are dataclasses, for which a property here would be a default

        @property
        def name(self) -> str: ...

        @property
        def settings(self) -> tuple[Setting, ...]:
            """What may be set, with the job's own values as defaults."""
            ...

    traces_take_long: ClassVar[bool] = False
    """a trace takes a good part of a minute, so that none is made which can be spared"""

    one_what_if_at_a_time: ClassVar[bool] = False
    """a trace takes tens of seconds, so that a page does not look at every combination of batch and precision"""

    not_measured: ClassVar[str] = "its step runs in TensorFlow or Keras"
    """why ``torch_pieces`` cannot be asked for"""

    validates_apart: ClassVar[str] = ""
    """evaluation is a process of its own; what helps where that does not fit"""

    def trace(self, request: TraceRequest) -> Timeline:
        """One steady training step as a Timeline. Every source's job has its own."""
        raise NotImplementedError(f"{type(self).__name__} must define trace(request), which returns a Timeline")

    def validates(self, settings: Settings) -> bool:
        """Whether the user said how the job validates, so that a check looks at that too without being asked."""
        return False

    def batch_rule(self, settings: Settings) -> BatchRule:
        """How the training makes batches of a dataset's images; InputError where it does not depend on them."""
        raise InputError(f"{self.name} makes its batches itself: it cannot be held against --data")

    def data_files(self) -> tuple[Path, ...]:
        """Files of the dataset that the job itself names, where they are here."""
        return ()

    def with_data(self, dataset: Dataset) -> Job:
        """The job, which may look into what it trains on: for host RAM."""
        return self

    def validation_rule(self, settings: Settings) -> BatchRule:
        """The same for batches of the validation, one image each where the job does not say how it validates."""
        rule = self.batch_rule(settings)
        return rule if self.validates(settings) else replace(rule, images=1)

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        """What may change to save memory, from ``settings`` on. ``about`` is what a trace of the job found: whether
        batch normalisation trains, for instance."""
        return ()

    def describe_other_ways(self, settings: Settings) -> tuple[str, ...]:
        """What else there is where no change is enough: another program that trains it, or another model."""
        return ()

    def text_under(self, settings: Settings) -> str:
        """The job as ``oomproof check`` takes it under these settings, where they are options of the job's own command;
        empty where the command line of oomproof takes them itself."""
        return ""

    def settings_for_plans(self, settings: Settings) -> Settings:
        """What a search starts from, which traces many times: the settings, without what would make each trace long."""
        return settings

    def settings_for_time(self, settings: Settings) -> Settings | None:
        """Where a trace under ``settings`` shows no work, because a compiler made one program of it: settings with
        which the same operations run one by one."""
        return None

    @property
    def place(self) -> Path:
        """The file that ``write`` makes or edits where no target is named; InputError where nothing can be written."""
        raise InputError(f"{self.name} has no file of its own: say where its settings should go")

    def training_code(self, settings: Settings, path: Path, changes: Sequence[str]) -> Sequence[str]:
        """What to paste into a training so that it runs with the settings in ``path``."""
        raise InputError(f"{self.name} cannot be written back")

    def show_change(self, settings: Settings) -> str:
        """What a plan changes in the user's own files, as a diff, where ``write`` would change them."""
        return ""

    def own_names(self, settings: Settings) -> frozenset[str]:
        """Settings that mean what the job means by them, even if every training has one of that name."""
        return frozenset(setting.name for setting in self.settings if setting.own)

    def write(self, settings: Settings, target: Path | None, *, device: str = "", changes: Sequence[str] = ()) -> str:
        """Puts settings where the job came from, or into ``target``; returns what the user should do with it.
        ``device`` and ``changes`` say in words what they were made for, where there is a place for that."""
        from oomproof.changes.settings_file import write_settings

        path = target or self.place
        write_settings(path, self.name, device, settings, changes, own=self.own_names(settings))
        code = self.training_code(settings, path, changes)
        return "\n".join([f"wrote {path}. In your training:", "", *code, ""])


@runtime_checkable
class ReadsData(Protocol):
    """A job that knows what its data keep in host RAM, without a trace."""

    def price_data(self, settings: Settings) -> Callable[[Settings], Mapping[str, Any]]:
        """For the job under ``settings``: from other sizes of its data to the fields of About that they decide."""
        ...
