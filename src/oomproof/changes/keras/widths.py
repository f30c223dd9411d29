"""Which layers of a Keras graph must have equally many channels, and how many each has in a narrower copy.

The graph is walked once. Every layer that makes channels (convolutions, Dense) opens a group; what adds or multiplies
two tensors joins their groups; what the model returns keeps its size. A layer that is not known here keeps the size of
all it is given, so that a copy always fits together, if less narrow than it could be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import keras

from oomproof.errors import CannotDo
from oomproof.frameworks.keras import graph_in, has_graph, inputs_of, nodes_in_order, outputs_of

layers = keras.layers

MAKERS = {
    layers.Dense: "units",
    **dict.fromkeys((layers.Conv1D, layers.Conv2D, layers.Conv3D), "filters"),
    **dict.fromkeys((layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose), "filters"),
    **dict.fromkeys((layers.SeparableConv1D, layers.SeparableConv2D), "filters"),
}
"""layers whose channels are theirs to choose, and what they call the number"""
_MERGES = (layers.Add, layers.Subtract, layers.Multiply, layers.Average, layers.Maximum, layers.Minimum)
_KEEPERS = (
    *(layers.Activation, layers.ReLU, layers.LeakyReLU, layers.PReLU, layers.ELU, layers.Softmax),
    *(layers.Dropout, layers.SpatialDropout1D, layers.SpatialDropout2D, layers.SpatialDropout3D),
    *(layers.GaussianNoise, layers.GaussianDropout, layers.Identity, layers.ActivityRegularization),
    *(layers.MaxPooling1D, layers.MaxPooling2D, layers.MaxPooling3D),
    *(layers.AveragePooling1D, layers.AveragePooling2D, layers.AveragePooling3D),
    *(layers.GlobalAveragePooling1D, layers.GlobalAveragePooling2D, layers.GlobalAveragePooling3D),
    *(layers.GlobalMaxPooling1D, layers.GlobalMaxPooling2D, layers.GlobalMaxPooling3D),
    *(layers.UpSampling1D, layers.UpSampling2D, layers.UpSampling3D, layers.Resizing),
    *(layers.ZeroPadding1D, layers.ZeroPadding2D, layers.ZeroPadding3D),
    *(layers.Cropping1D, layers.Cropping2D, layers.Cropping3D, layers.DepthwiseConv1D, layers.DepthwiseConv2D),
    *(layers.BatchNormalization, layers.LayerNormalization, layers.GroupNormalization, layers.UnitNormalization),
)
_MERGE_OPS = {"Add", "Subtract", "Multiply", "Maximum", "Minimum"}
_KEEP_OPS = {"Relu", "Relu6", "Sigmoid", "HardSigmoid", "HardSwish", "HardSilu", "Silu", "Gelu", "Tanh", "LeakyRelu"}
"""operations of keras.ops, by class: the layers' counterparts"""


@dataclass(eq=False)
class Group:
    """Channels that are as many wherever they are seen. Joined groups share what ``root`` says."""

    size: int
    multiple: int = 1
    """what the number must be divisible by"""
    fixed: bool = False
    _joined: Group | None = None

    @property
    def root(self) -> Group:
        return self if self._joined is None else self._joined.root

    def join(self, other: Group) -> None:
        mine, theirs = self.root, other.root
        if mine is not theirs:
            theirs._joined = mine
            mine.multiple = math.lcm(mine.multiple, theirs.multiple)
            mine.fixed |= theirs.fixed

    def at(self, factor: float) -> int:
        root = self.root
        if root.fixed or root.size % root.multiple:
            return root.size
        return max(1, round(root.size * factor / root.multiple)) * root.multiple


@dataclass(frozen=True)
class Channels:
    """The last side of a tensor: groups one behind the other. Behind Flatten their sizes no longer add up to it."""

    groups: tuple[Group, ...]
    exact: bool = True

    @property
    def size(self) -> int:
        return sum(group.size for group in self.groups)

    def at(self, factor: float) -> int:
        return sum(group.at(factor) for group in self.groups)

    def fix(self) -> None:
        for group in self.groups:
            group.root.fixed = True


@dataclass
class Widths:
    """What a walk through a model found: the configs of layers in a narrower copy."""

    made: dict[int, Group] = field(default_factory=dict)
    """by id() of the layer that makes the channels"""
    given: dict[int, Channels] = field(default_factory=dict)
    """what each layer was first called with: another call must look the same"""
    seen: set[int] = field(default_factory=set)

    def config(self, layer: Any, factor: float) -> dict[str, Any]:
        """What changes in a layer's config."""
        if id(layer) in self.made:
            return {MAKERS[type(layer)]: self.made[id(layer)].at(factor)}
        if id(layer) not in self.seen:
            return {}
        channels = self.given[id(layer)]
        if isinstance(layer, layers.Reshape):
            return {"target_shape": (*layer.target_shape[:-1], channels.at(factor))}
        if isinstance(layer, layers.GroupNormalization) and layer.groups == channels.size:
            return {"groups": channels.at(factor)}
        return {}

    @property
    def changeable(self) -> bool:
        return any(not group.root.fixed for group in self.made.values())


def widths_of(model: Any) -> Widths:
    """Walks a Functional or Sequential model."""
    found = Widths()
    graph = _graph(model)
    for channels in _walk(graph, [_fix_channels(tensor.shape) for tensor in inputs_of(graph)], found):
        channels.fix()
    return found


def _graph(model: Any) -> Any:
    graph = graph_in(model) if isinstance(model, keras.Sequential) else model
    if graph is None or not has_graph(graph):
        raise CannotDo(
            f"the model {model.name} has no graph of layers: expected a Functional model, or a Sequential one that "
            "begins with keras.Input(shape); build subclassed models narrower by yourself"
        )
    return graph


def _walk(graph: Any, given: Sequence[Channels], found: Widths) -> list[Channels]:
    known = {id(tensor): channels for tensor, channels in zip(inputs_of(graph), given, strict=True)}
    for node in nodes_in_order(graph):
        if node.is_input:
            continue
        inputs = [known[id(tensor)] for tensor in node.arguments.keras_tensors]
        known.update(zip(map(id, node.outputs), _through(node, inputs, found), strict=True))
    return [known[id(tensor)] for tensor in outputs_of(graph)]


def _through(node: Any, inputs: list[Channels], found: Widths) -> list[Channels]:
    """What comes out of one call of a layer or operation."""
    layer = node.operation
    if isinstance(layer, keras.Sequential) or has_graph(layer):
        return _walk(_graph(layer), inputs, found)
    result = _find_channels(node, inputs, found)
    if result is None:
        for channels in inputs:
            channels.fix()
        return [_fix_channels(tensor.shape) for tensor in node.outputs]
    if len(inputs) == 1 and isinstance(layer, keras.Layer):
        first = found.given.setdefault(id(layer), inputs[0])
        found.seen.add(id(layer))
        if first is not inputs[0]:
            _join_channels([first, inputs[0]])
    return [result]


def _find_channels(node: Any, inputs: list[Channels], found: Widths) -> Channels | None:
    """None where the layer is not known to keep channels apart."""
    layer, kind = node.operation, type(node.operation)
    foreign = getattr(layer, "data_format", "channels_last") == "channels_first"
    if len(node.outputs) != 1 or not inputs or foreign:
        return None
    if kind is layers.Concatenate and layer.axis in (-1, len(node.outputs[0].shape) - 1):
        return Channels(tuple(group for each in inputs for group in each.groups), all(each.exact for each in inputs))
    merges = isinstance(layer, _MERGES) or kind is layers.Concatenate
    if merges or (_is_op(layer) and kind.__name__ in _MERGE_OPS and len(inputs) > 1):
        return _join_channels(inputs)
    return _of_one(node, inputs[0], found) if len(inputs) == 1 else None


def _of_one(node: Any, given: Channels, found: Widths) -> Channels | None:
    layer, kind = node.operation, type(node.operation)
    if kind in MAKERS:
        return _maker(layer, given, found)
    if kind is layers.Flatten:
        return Channels(given.groups, exact=False)
    if kind is layers.Reshape:
        before = node.arguments.keras_tensors[0].shape
        return given if given.exact and layer.target_shape[-1] == before[-1] == given.size else None
    if kind in _KEEPERS or (_is_op(layer) and kind.__name__ in _KEEP_OPS):
        return given if _keeps(layer, given, len(node.outputs[0].shape)) else None
    return None


def _maker(layer: Any, given: Channels, found: Widths) -> Channels:
    group = found.made.setdefault(id(layer), Group(getattr(layer, MAKERS[type(layer)])))
    parts = int(getattr(layer, "groups", 1))
    if parts > 1:  # a grouped convolution: both its sides are cut into as many parts
        group.root.multiple = math.lcm(group.root.multiple, parts)
        for each in given.groups:
            each.root.multiple = math.lcm(each.root.multiple, parts)
            each.root.fixed |= each.size % parts != 0
    return Channels((group,))


def _keeps(layer: Any, given: Channels, rank: int) -> bool:
    """Whether each channel comes out where it went in, whatever their number."""
    if not given.exact and isinstance(layer, _OF_CHANNELS):
        return False
    axis = getattr(layer, "axis", -1) if isinstance(layer, _ALONG_AXIS) else -1
    if axis not in (-1, rank - 1, [-1], [rank - 1]):
        return False
    if isinstance(layer, layers.GroupNormalization) and layer.groups != given.size:
        for group in given.groups:
            group.root.multiple = math.lcm(group.root.multiple, layer.groups)
    return getattr(layer, "depth_multiplier", 1) == 1


_ALONG_AXIS = (layers.BatchNormalization, layers.LayerNormalization, layers.GroupNormalization)
_OF_CHANNELS = (layers.DepthwiseConv1D, layers.DepthwiseConv2D, layers.GroupNormalization)


def _join_channels(given: Sequence[Channels]) -> Channels:
    """Tensors that are added, multiplied or stacked: equally many channels, but for single ones that are spread."""
    largest = max(given, key=lambda each: each.size)
    for each in given:
        if each.size == 1 < largest.size:
            each.fix()
        elif each is not largest and _alike(each, largest):
            for one, other in zip(largest.groups, each.groups, strict=True):
                one.join(other)
        elif each is not largest:
            each.fix()
            largest.fix()
    return largest


def _alike(one: Channels, other: Channels) -> bool:
    sizes = [[group.size for group in each.groups] for each in (one, other)]
    return one.exact and other.exact and sizes[0] == sizes[1]


def _is_op(operation: Any) -> bool:
    return not isinstance(operation, keras.Layer) and type(operation).__module__.startswith("keras.")


def _fix_channels(shape: Sequence[int | None]) -> Channels:
    return Channels((Group(int(shape[-1] or 0) if shape else 0, fixed=True),))
