"""``launch(main, num_gpus, ...)``: Detectron2's way to start a script on several GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script.contents import Call, Unknown
from oomproof.sources.detectron2.script.knowing import NotKnown, iterate_value, require_known

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader


def launch(reader: Reader, call: Call) -> Any:
    """Calls the script's function with what it is given, and remembers on how many GPUs."""
    try:
        each, machines = (
            require_known(reader, call.get(*where, 1)) for where in (("num_gpus_per_machine", 1), ("num_machines", 2))
        )
        gpus = each * machines
        reader.gpus = gpus if isinstance(gpus, int) and gpus >= 1 else 1
    except (NotKnown, TypeError) as reason:
        said = f"the number of GPUs, {reason}, is not known before the script runs"
        reader.gpus = Unknown(f"{reader.at(call.node)}: {said}")
    items = iterate_value(reader, call.get("args", 5, ()))
    return reader.call(call.given[0], Call(tuple(items or ()), {}, call.node)) or Unknown("launch")
