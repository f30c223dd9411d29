"""What the names of a followed script stand for, and the memory that holds what may change.

Plain values (numbers, texts, tuples, paths) stand for themselves. Things with parts (lists, objects, scopes, configs,
trainers) are a ``Ref``: their content lies in the ``Memory``, is never changed in place, and so can be kept as it was
while two ways on are followed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from oomproof.sources.detectron2.config.config import Config, Origin

REMEMBERS = frozenset(("lru_cache", "cache", "cached_property"))
"""decorators of functions that are run once for the same arguments"""
MOST_PARTS = 10_000
"""of a list or tuple, those of its parts included: one that holds itself twice, again and again, has billions"""


@dataclass(frozen=True)
class Unknown:
    """What only a run can tell; ``why`` is the code that it comes from."""

    why: str
    may_be: tuple[Ref, ...] = ()
    """configs of which it may be one, or a section"""
    choices: tuple[Any, ...] = ()
    """functions, classes and objects of which it may be one"""


@dataclass(frozen=True)
class Ref:
    number: int


@dataclass(frozen=True)
class Section:
    """A section of a config: ``solver = cfg.SOLVER``; the whole config where ``prefix`` is empty."""

    of: Ref
    prefix: str = ""


@dataclass(frozen=True)
class Foreign:
    """Something of another module, by its full name: ``detectron2.config.get_cfg``, ``os.environ``, ``int``."""

    name: str

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Function:
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Ref
    """where it was defined"""
    file: str
    defaults: tuple[tuple[str, Any], ...] = ()
    marks: frozenset[str] = frozenset()
    """``property``, ``staticmethod``, ``classmethod``"""
    setter: Any = None
    """of a property"""
    around: str = ""
    """a decorator of other code, which may change what is given or returned"""


@dataclass(frozen=True)
class Partial:
    """A call of which some arguments are given already; methods are bound to their object in this way."""

    function: Any
    given: tuple[Any, ...] = ()
    words: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Method:
    """A method of something that is not an object of the script: ``cfg.merge_from_file``, ``names.append``."""

    of: Any
    name: str


@dataclass(frozen=True)
class Super:
    """``super()`` in a method of ``owner``."""

    self: Any
    owner: Ref


@dataclass(frozen=True)
class Hook:
    """``Accumulate(4)``."""

    count: Any


@dataclass(frozen=True)
class Call:
    """What a call gives, and where it stands."""

    given: tuple[Any, ...]
    words: Mapping[str, Any]
    node: ast.AST

    @property
    def every(self) -> tuple[Any, ...]:
        return (*self.given, *self.words.values())

    def get(self, name: str, place: int, otherwise: Any = None) -> Any:
        """The argument of that name or at that place."""
        usual = self.given[place] if place < len(self.given) else otherwise
        return self.words.get(name, usual)


@dataclass(frozen=True)
class Optimizer:
    """An optimizer, as the setting of that name has it: ``own`` is Detectron2's SGD."""

    kind: str


@dataclass(frozen=True)
class Mapper:
    """What makes images of files, such as ``DatasetMapper(cfg)``."""

    sizes: str = ""
    """the code that decides how large images become, where that is not INPUT of the config"""


@dataclass(frozen=True)
class BatchLoader:
    """A call that makes the batches of a training, and what it says of them itself."""

    where: Origin
    keys: tuple[tuple[str, Any, str], ...] = ()
    """keys of the config, the value that each has in this loader, and the code that says so, where there is some"""
    sizes: str = ""
    """as of its Mapper"""


# -- contents --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Items:
    """A list."""

    items: tuple[Any, ...]


DECLARED = ("<global>", "<nonlocal>")
"""parts of a scope that are no names: those that its ``global`` and ``nonlocal`` name"""


@dataclass(frozen=True)
class Parts:
    """A scope, a dict, a namespace, or an object and its attributes."""

    kind: str
    parts: Mapping[Any, Any] = field(default_factory=dict)
    above: Ref | None = None
    """the scope around a scope, the class of an object"""


@dataclass(frozen=True)
class Class:
    node: ast.ClassDef
    scope: Ref
    file: str
    bases: tuple[Any, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Made:
    """A config that the script makes."""

    config: Config
    touched: int = 0
    own: Mapping[str, Any] = field(default_factory=dict)
    """keys that Detectron2 does not have"""
    has_given_file: bool = False
    """the file that the user names is merged"""
    takes_new_keys: bool = False
    """``cfg.set_new_allowed(True)``, or code that is not known has had the config"""


@dataclass(frozen=True)
class Run:
    """A trainer or a model: the config that it was built from, and what was said of the training besides."""

    config: Config
    training: Mapping[str, Any] = field(default_factory=dict)
    is_model: bool = False
    begun: bool = False
    by_hand: bool = False
    """a model: whoever builds it builds the loader as well"""
    above: Ref | None = None
    """its class, where that is one of the script"""
    parts: Mapping[str, Any] = field(default_factory=dict)


Content = Items | Parts | Class | Made | Run | Unknown


class Memory:
    """The contents of all Refs. A fork is a copy of the table: contents themselves are never changed."""

    def __init__(self) -> None:
        self.contents: dict[int, Content] = {}
        self._numbers = count()

    def new(self, content: Content) -> Ref:
        ref = Ref(next(self._numbers))
        self[ref] = content
        return ref

    def __getitem__(self, ref: Ref) -> Content:
        return self.contents[ref.number]

    def __setitem__(self, ref: Ref, content: Content) -> None:
        too_long = isinstance(content, Items) and len(content.items) > MOST_PARTS
        self.contents[ref.number] = Unknown(f"a list of more than {MOST_PARTS} items") if too_long else content

    def __contains__(self, ref: Ref) -> bool:
        return ref.number in self.contents

    def get(self, value: Any) -> Any:
        """The content behind a Ref; of anything else, None."""
        return self.contents.get(value.number) if isinstance(value, Ref) else None
