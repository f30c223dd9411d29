"""Which operations may take scratch memory that no tensor shows, and what is needed to price it: convolutions, and
recurrent layers in cuDNN."""

from __future__ import annotations

from typing import Any

from oomproof.memory.scratch.recurrent import BACKWARD, FORWARD, TF_BACKWARD, TF_FORWARD
from oomproof.trace.tensorflow.graph.graph import Graph, Node, Output

_FORWARD = frozenset({"Conv2D", "_FusedConv2D", "DepthwiseConv2dNative", "Conv3D", "_FusedDepthwiseConv2dNative"})
_BACK_TO_INPUT = frozenset(
    {"Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput", "Conv3DBackpropInputV2", "Conv3DBackpropInput"}
)
_BACK_TO_FILTER = frozenset(
    {"Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter", "Conv3DBackpropFilterV2", "Conv3DBackpropFilter"}
)


def read_call(graph: Graph, node: Node) -> dict[str, Any] | None:
    """What is needed to price a call; None for an operation that takes no scratch."""
    return read_recurrent(graph, node) or read_convolution(graph, node)


def read_recurrent(graph: Graph, node: Node) -> dict[str, Any] | None:
    """A call of cuDNN for a recurrent layer; its first inputs are the sequences, two states and the weights."""
    if node.op not in (TF_FORWARD, TF_BACKWARD):
        return None
    x, state, weights = (graph.output(node.inputs[place]) for place in (0, 1, 3))
    # Of an LSTM's weights, which are those of four gates; a GRU has three.
    numbers = x.bytes // max(1, x.shape[-1]) * state.shape[-1]
    return {
        "op": FORWARD if node.op == TF_FORWARD else BACKWARD,
        "copies": 0,
        "weights": weights.bytes,
        "gates": 4 * numbers,
    }


def read_convolution(graph: Graph, node: Node) -> dict[str, Any] | None:
    """A convolution's shapes with channels second, as prices want them; None for any other operation."""
    if node.op in _FORWARD:
        x, w, y = graph.output(node.inputs[0]), graph.output(node.inputs[1]), node.outputs[0]
        wants: list[bool] = []
    elif node.op in _BACK_TO_INPUT:
        x, w, y = node.outputs[0], graph.output(node.inputs[1]), graph.output(node.inputs[2])
        wants = [True, False, False]
    elif node.op in _BACK_TO_FILTER:
        x, w, y = graph.output(node.inputs[0]), node.outputs[0], graph.output(node.inputs[2])
        wants = [False, True, False]
    else:
        return None
    if not len(x.shape) == len(w.shape) == len(y.shape) >= 3:
        return None
    form = node.attrs.get("data_format", b"NHWC")
    last = (form.decode() if isinstance(form, bytes) else str(form)).endswith("C")
    depthwise = node.op.startswith(("Depthwise", "_FusedDepthwise"))
    sizes, channels = _channels_second(x, last), _channels_second(y, last)
    *area, per_group, filters = w.shape
    groups = max(1, sizes[1] // max(1, per_group)) if not depthwise else sizes[1]
    weight = [per_group * filters, 1, *area] if depthwise else [filters, per_group, *area]
    return {
        "op": "convolution_backward" if wants else "convolution",
        "x": sizes,
        "w": weight,
        "y": channels,
        "stride": _spatial(node.attrs.get("strides"), last, len(area)),
        "dilation": _spatial(node.attrs.get("dilations"), last, len(area)),
        "transposed": False,
        "groups": groups,
        "dtype": x.dtype,
        "item": max(1, x.bytes // max(1, _count(x))),
        "channels_last": last,
        **({"wants": wants} if wants else {}),
    }


def _channels_second(tensor: Output, last: bool) -> list[int]:
    images, *sides = tensor.shape
    return [images, sides[-1], *sides[:-1]] if last else [images, *sides]


def _spatial(values: list[int] | None, last: bool, count: int) -> list[int]:
    if not values or len(values) < count + 2:
        return [1] * count
    return list(values[1 : 1 + count] if last else values[2 : 2 + count])


def _count(tensor: Output) -> int:
    count = 1
    for side in tensor.shape:
        count *= side
    return count
