"""Convolutions in a compiled program, with the shapes by which ``memory/scratch`` prices their workspaces.

On a GPU, XLA tries cuDNN's algorithms and puts the workspace of the fastest into its plan. Without a GPU nothing can be
tried: every call then has a workspace of no bytes, and the price comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_FORWARD = ("__cudnn$convForward", "__cudnn$convBiasActivationForward", "__cudnn$convForwardGraph")
_TO_INPUT = "__cudnn$convBackwardInput"
_TO_FILTER = "__cudnn$convBackwardFilter"
_ITEMS = {10: ("float16", 2), 11: ("float32", 4), 12: ("float64", 8), 16: ("bfloat16", 2)}
"""by the number of a PrimitiveType (xla_data.proto)"""


def read_convolution(instruction: Any, by_id: Mapping[int, Any]) -> dict[str, Any] | None:
    """A convolution's shapes with channels second; None for any other operation."""
    target = instruction.custom_call_target
    if target not in (*_FORWARD, _TO_INPUT, _TO_FILTER) or len(instruction.operand_ids) < 2:
        return None
    first, second = (_shape(by_id[number]) for number in instruction.operand_ids[:2])
    result = _shape(instruction)
    wants: list[bool] = []
    x, w, y = first, second, result
    if target == _TO_INPUT:
        x, w, y, wants = result, second, first, [True, False, False]
    elif target == _TO_FILTER:
        x, w, y, wants = first, result, second, [False, True, False]
    numbers = instruction.convolution_dimension_numbers
    image = (numbers.input_batch_dimension, numbers.input_feature_dimension, *numbers.input_spatial_dimensions)
    out = (numbers.output_batch_dimension, numbers.output_feature_dimension, *numbers.output_spatial_dimensions)
    taps = (
        numbers.kernel_output_feature_dimension,
        numbers.kernel_input_feature_dimension,
        *numbers.kernel_spatial_dimensions,
    )
    sizes = len(x.dimensions), len(w.dimensions), len(y.dimensions)
    if len(set(sizes)) != 1 or sizes[0] < 3:
        return None
    dtype, item = _ITEMS.get(x.element_type, ("float32", 4))
    window = instruction.window.dimensions
    return {
        "op": "convolution_backward" if wants else "convolution",
        "x": [int(x.dimensions[side]) for side in image],
        "w": [int(w.dimensions[side]) for side in taps],
        "y": [int(y.dimensions[side]) for side in out],
        "stride": [max(1, int(each.stride)) for each in window],
        "dilation": [max(1, int(each.window_dilation)) for each in window],
        "transposed": False,
        "groups": max(1, int(instruction.feature_group_count)),
        "dtype": dtype,
        "item": item,
        "channels_last": _channels_last(x, numbers.input_feature_dimension),
        **({"wants": wants} if wants else {}),
    }


def _shape(instruction: Any) -> Any:
    """Of a tensor, or of the first of a tuple; the second is the workspace."""
    shape = instruction.shape
    return shape.tuple_shapes[0] if shape.tuple_shapes else shape


def _channels_last(shape: Any, channels: int) -> bool:
    order = list(shape.layout.minor_to_major)
    return bool(order) and order[0] == channels
