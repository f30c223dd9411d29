"""What TensorFlow's kernels do with the memory of their inputs: hand it on, write into it, or take new memory.

As the kernels of TensorFlow 2.21 were seen to do it (tests/trace hold the model against the real allocator).
"""

from __future__ import annotations

from oomproof.trace.tensorflow.graph.branches import SWITCHES
from oomproof.trace.tensorflow.graph.graph import Graph, Node, Output, Ref


def _ops(names: str) -> frozenset[str]:
    return frozenset(names.split())


SHARES_FIRST = _ops(
    """
    Identity Reshape Squeeze ExpandDims StopGradient PreventGradient Bitcast CheckNumerics PlaceholderWithDefault
    EnsureShape Assign AssignAdd AssignSub DestroyTemporaryVariable Merge RefMerge _Chosen Enter Exit NextIteration
    TensorListPushBack TensorListSetItem TensorListResize OptionalFromValue OptionalGetValue
    ApplyGradientDescent ApplyMomentum ApplyKerasMomentum ApplyAdam ApplyAdaMax ApplyRMSProp ApplyCenteredRMSProp
    ApplyAdagrad ApplyAdagradV2 ApplyAdadelta ApplyFtrl ApplyFtrlV2 ApplyProximalGradientDescent ApplyProximalAdagrad
    """
)
"""the result is the first input under another name"""

LIST_GOES_ON = frozenset({"TensorListPopBack", "AddN"})
"""a list comes out that has the elements of the first one"""

SHARES_EACH = frozenset({"IdentityN"})
SHARES_SAME_SIZE = _ops(
    """
    Transpose Sum Mean Max Min Prod All Any BroadcastTo Tile Pad PadV2 Slice StridedSlice ConcatV2 Snapshot
    """
)
"""the result is the first input where nothing is left to do: as many elements as came in, in the same order"""

_REDUCTIONS = _ops("Sum Mean Max Min Prod All Any")

ELEMENTWISE = _ops(
    """
    Add AddV2 Sub Mul RealDiv Div DivNoNan MulNoNan Maximum Minimum SquaredDifference Pow FloorDiv FloorMod Mod
    Xdivy Xlogy Atan2 LogicalAnd LogicalOr AddN Neg Exp Expm1 Log Log1p Sqrt Rsqrt Square Abs Sign Tanh Sigmoid
    Reciprocal Inv Sin Cos Tan Erf Erfc Floor Ceil Round Rint LogicalNot Softsign Relu Relu6 Elu Selu Softplus
    LeakyRelu TanhGrad SigmoidGrad SqrtGrad RsqrtGrad ReciprocalGrad InvGrad ReluGrad Relu6Grad EluGrad SeluGrad
    SoftplusGrad SoftsignGrad LeakyReluGrad Select SelectV2 ZerosLike OnesLike ClipByValue
    """
)
"""may write into any input that nobody else needs, of the same type and number of elements"""

WRITES_INTO: dict[str, dict[int, tuple[int, ...]]] = {
    "BiasAdd": {0: (0,)},
    "FusedBatchNormV3": {0: (0,)},
    "_FusedBatchNormEx": {0: (0,)},
    "Softmax": {0: (0,)},
    "LogSoftmax": {0: (0,)},
    "SoftmaxCrossEntropyWithLogits": {1: (0,)},
    "SparseSoftmaxCrossEntropyWithLogits": {1: (0,)},
    "ReluGrad": {0: (0,)},
    "Relu6Grad": {0: (0,)},
    "LeakyReluGrad": {0: (0,)},
    "EluGrad": {0: (0,)},
    "SeluGrad": {0: (0,)},
    "SoftplusGrad": {0: (0,)},
    "SoftsignGrad": {0: (0,)},
    "ClipByValue": {0: (0,)},
    "TensorScatterUpdate": {0: (0,)},
    "TensorScatterAdd": {0: (0,)},
    "InplaceUpdate": {0: (0,)},
    "InplaceAdd": {0: (0,)},
}
"""output -> the inputs it may be written into, where that is not simply any of them"""

WRITES_INTO_ON_CPU: dict[str, dict[int, tuple[int, ...]]] = {"MaxPoolGrad": {0: (0,)}}
"""seen on a CPU; on a GPU another kernel does it, which is taken to need new memory"""

VARIABLE_READS = frozenset({"ReadVariableOp"})
VARIABLE_TAKES = frozenset({"AssignVariableOp"})
"""the variable's memory becomes that of the value"""
VARIABLE_UPDATES = _ops(
    """
    AssignAddVariableOp AssignSubVariableOp
    ResourceApplyGradientDescent ResourceApplyMomentum ResourceApplyKerasMomentum ResourceApplyAdam ResourceApplyAdaMax
    ResourceApplyAdamWithAmsgrad ResourceApplyRMSProp ResourceApplyCenteredRMSProp ResourceApplyAdagrad
    ResourceApplyAdagradV2 ResourceApplyAdagradDA ResourceApplyAdadelta ResourceApplyFtrl ResourceApplyFtrlV2
    ResourceApplyProximalGradientDescent ResourceApplyProximalAdagrad ResourceApplyPowerSign ResourceApplyAddSign
    """
)
"""in place, or in a copy where the old value is still read; an optimizer's kernel does so with its slots, too"""
REF_VARIABLES = frozenset({"VariableV2", "Variable"})
"""variables of TensorFlow 1 that are not resources: their result is the memory itself"""

HANDLES = frozenset({"VarHandleOp", "NoOp", "Assert", "Placeholder", "_Arg", "Const"}) | REF_VARIABLES
"""take no memory when they run; inputs and constants are there before"""

CHEAP = _ops(
    """
    Const Identity IdentityN Reshape Squeeze ExpandDims StopGradient PreventGradient Shape ShapeN Rank Size NoOp
    VarHandleOp Placeholder PlaceholderWithDefault _Arg _Retval Switch Merge _Chosen Enter Exit NextIteration LoopCond
    StridedSliceGrad BroadcastGradientArgs BroadcastArgs ConcatOffset ControlTrigger
    InvertPermutation EnsureShape
    """
)
"""kernels of the CPU that the executor runs at once instead of handing them to another thread"""

ON_HOST = _ops(
    """
    Shape ShapeN Size Rank BroadcastGradientArgs BroadcastArgs Range ConcatOffset InvertPermutation StridedSlice
    Pack Add AddV2 Sub Mul FloorDiv FloorMod Maximum Minimum Prod Cast Reshape Const GatherV2 ConcatV2 Neg
    Greater Less Squeeze ExpandDims Identity Unpack Fill Sum Max Min Equal NotEqual LogicalAnd SelectV2 Select
    """
)
"""kernels that keep integers of shape arithmetic (int32) in host memory, on a GPU too"""


def find_shared_input(graph: Graph, node: Node, index: int) -> Ref | None:
    """The input whose memory output ``index`` is, whoever else reads it."""
    if node.op in SHARES_FIRST or (node.op in LIST_GOES_ON and node.outputs[index].dtype == "variant"):
        return node.inputs[0] if index == 0 else None
    if node.op in SWITCHES:  # either way
        return node.inputs[0]
    if node.op in SHARES_EACH:
        return node.inputs[index]
    if node.op in SHARES_SAME_SIZE and node.inputs and _is_unchanged(graph, node):
        return node.inputs[0]
    if node.op == "Cast" and graph.output(node.inputs[0]).dtype == node.outputs[0].dtype:
        return node.inputs[0]
    return None


def _is_unchanged(graph: Graph, node: Node) -> bool:
    before, after = graph.output(node.inputs[0]), node.outputs[0]
    if before.bytes != after.bytes or before.dtype != after.dtype:
        return False
    if node.op in _REDUCTIONS:
        return True
    if node.op == "Transpose":
        order = graph.nodes[node.inputs[1][0]].attrs.get("value")
        if order is None or len(order) != len(before.shape):
            return False
        moved = [axis for axis in order if before.shape[axis] != 1]
        return moved == sorted(moved)
    return before.shape == after.shape or node.op == "Snapshot"


def find_writable_inputs(node: Node, index: int, on_gpu: bool) -> tuple[int, ...]:
    """The inputs that output ``index`` may be written into, once nobody else needs them."""
    if node.op in WRITES_INTO_ON_CPU and not on_gpu:
        return WRITES_INTO_ON_CPU[node.op].get(index, ())
    if node.op in WRITES_INTO:
        return WRITES_INTO[node.op].get(index, ())
    return tuple(range(len(node.inputs))) if node.op in ELEMENTWISE and index == 0 else ()


def is_on_host(node: Node, output: Output) -> bool:
    """Whether a GPU's kernel leaves this result in host memory."""
    return output.dtype in ("int32", "bool") and node.op in ON_HOST and output.bytes <= 1024
