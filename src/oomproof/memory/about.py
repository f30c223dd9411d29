"""What a trace found out about a step besides its blocks of memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from oomproof.memory.settings import Settings

BY_OPERATION = "operation by operation"
"""among About.orders: the peak of a step that runs without a graph, and so in no order of one"""


@dataclass(frozen=True)
class About:
    """One fact a field. A tracer knows some of them, a source the others; a file keeps them all."""

    job: str = ""
    settings: Settings = field(default_factory=Settings)
    """under which it was traced"""
    framework: str = ""
    notes: tuple[str, ...] = ()
    """what a reader should know: settings that do nothing, what was assumed"""
    not_counted: tuple[str, ...] = ()
    batches_seen: str = ""
    """of a script: the batches that its own loader gave, of which the largest was traced"""
    unseen: tuple[str, ...] = ()
    """of a script: what may need more later and was not seen; told in the first lines"""

    # -- the machine that the step is laid out for
    dialect: Literal["cuda", "cpu"] = "cuda"
    allocator: Literal["cuda", "bfc"] = "cuda"
    limits: Literal["tensorflow", "jax"] = "tensorflow"
    """whose rule says how much of a card the bfc allocator may have"""
    threads: int = 1
    half_on_cpu: bool = True
    """the CPU's library has convolutions in bf16; AVX-512 and later. Counts in the cpu dialect alone"""
    arena: int = 0
    """bytes that a compiler has laid out in one block"""
    orders: Mapping[str, int] = field(default_factory=dict)
    """peaks of the orders in which a framework may run the step"""
    full_samplers: bool = False
    """a detector's heads were given as many regions of objects as they have room for"""
    least: int = 0
    """peak of the blocks of the same step where its samplers find as little as they can; 0: not looked at"""
    before_steps: int = 0
    """bytes that the process may hold in its allocator's cache before it begins to train, at worst"""
    validated: bool = False
    """what comes between epochs was traced along with it"""
    recorded: bool = False
    """a real run: libraries' workspaces are among its blocks"""
    reserved: int = 0
    """bytes that a recorded run's allocator held at the most"""
    device: int = 0
    """the number of the GPU that was recorded"""

    # -- host RAM
    on_host: int = 0
    """optimizer state and other tensors of the step that live there"""
    pipeline: int | None = None
    """bytes that the input pipeline keeps; None: nobody has read it"""
    pipeline_high: int = 0
    stacked_by_workers: bool = True
    """data workers may stack images to batches in memory of their own. False where they are known not to: PyTorch's own
    collate function writes to shared memory, and other trainers hand over lists"""
    dataset: Mapping[str, int] = field(default_factory=dict)
    """what annotations and images take there, form by form (memory/host_data.py); empty: not known"""

    # -- the training, for plans
    model: str = ""
    """the class of the whole model, which is the owner of what no part of it owns"""
    optimizer: str = ""
    precision: str = ""
    widened: int = 0
    """bytes of results that stay in fp32 under autocast, because they were made with numbers in fp32"""
    widened_by: str = ""
    """the class of the module that makes the most of them"""
    batchnorms: int = 0
    """layers whose result for one image depends on the others of its batch"""
    separable: bool = False
    """nothing mixes images or draws by chance"""
    mean_over_images: bool = False
    """the loss is a plain mean over images"""
    matching: bool = False
    """anchors are matched with boxes as torchvision does it"""
    at_once: Literal["", "any", "one"] = ""
    """whether gradients can be used the moment they are there: for any number of micro-batches, or one"""
    blocks: int = 0
    """parts of a Keras model that can be computed again"""
    values_asked: Mapping[str, int] = field(default_factory=dict)
    """how often the step asked for values, by operation"""
    per_box: frozenset[str] = frozenset()
    """owners whose memory goes with boxes, not with images and their pixels"""
    matchers: frozenset[str] = frozenset()
    """owners that match boxes image by image, and hold nothing of it afterwards"""
    details: Mapping[str, Any] = field(default_factory=dict)
    """what only people and tests read: sizes of a graph, a compiler's own sums"""

    def as_header(self) -> dict[str, Any]:
        """As JSON has it: what differs from an empty one."""
        empty = About()
        found = {
            each.name: _plain(getattr(self, each.name))
            for each in fields(self)
            if getattr(self, each.name) != getattr(empty, each.name)
        }
        return {**found, **({"roles": dict(self.settings.roles)} if self.settings.roles else {})}


def about_from_header(header: Mapping[str, Any]) -> About:
    """From what ``as_header`` made, or an older version; unknown facts are kept as details. Types are the reader's to
    check (memory/files/timeline_check.py)."""
    known = {each.name for each in fields(About)}
    plain = {name: value for name, value in header.items() if name in known}
    others = {name: value for name, value in header.items() if name not in known and name != "roles"}
    for name in ("notes", "not_counted", "unseen"):
        plain[name] = tuple(plain.get(name, ()))
    for name in ("per_box", "matchers"):
        plain[name] = frozenset(plain.get(name, ()))
    plain["settings"] = Settings(plain.get("settings", {}), header.get("roles", {}))
    about = About(**plain)
    return replace(about, details={**others, **about.details})


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return dict(value) if isinstance(value, Mapping) else value
