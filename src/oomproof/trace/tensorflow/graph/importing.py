"""A GraphDef as the runtime has it, made so that TensorFlow takes it in again and finds shapes."""

from __future__ import annotations

from typing import Any

from oomproof.trace.tensorflow.graph.capture import ARGUMENTS, SHAPED


def importable(definition: Any, before: Any) -> tuple[Any, dict[str, str]]:
    """The GraphDef with arguments as handles and placeholders, which can be imported with their shapes; and which
    tensor (NODE:NUMBER) each of the returning nodes returns. ``before`` knows the shapes, which grappler drops."""
    arguments = {node.name: node for node in before.node if node.op in ARGUMENTS}
    plain = type(definition)()
    plain.versions.CopyFrom(definition.versions)
    plain.library.CopyFrom(definition.library)
    returned: dict[str, str] = {}
    for node in definition.node:
        if node.op == "_Retval":
            name, _, number = node.input[0].partition(":")
            returned[node.name] = f"{name}:{number or 0}"
            continue
        copy = plain.node.add()
        copy.CopyFrom(node)
        known = arguments.get(node.name)
        if known is None:
            continue
        copy.ClearField("attr")
        if "_handle_dtypes" in known.attr:
            copy.op = "VarHandleOp"
            copy.attr["dtype"].type = known.attr["_handle_dtypes"].list.type[0]
            copy.attr["shape"].shape.CopyFrom(known.attr["_handle_shapes"].list.shape[0])
            copy.attr["shared_name"].s = node.name.encode()
        else:
            copy.op = "Placeholder"
            copy.attr["dtype"].type = (known.attr["dtype"] if known.op == SHAPED else known.attr["T"]).type
            if known.op == SHAPED:
                copy.attr["shape"].shape.CopyFrom(known.attr["shape"].shape)
            else:
                copy.attr["shape"].shape.unknown_rank = True
    return plain, returned
