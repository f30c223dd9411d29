"""An optimizer whose ``step`` is another one: for some of its parameters at a time, by its own code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch

from oomproof.errors import CannotDo
from oomproof.frameworks.torch import make_scheduled_step

Group = dict[str, Any]


def plain_step(optimizer: torch.optim.Optimizer, setting: str, instead: str) -> Callable[[torch.optim.Optimizer], Any]:
    """The optimizer's ``step`` without its hooks; refuses optimizers that may not update parameters one by one."""
    kind = type(optimizer)
    if not kind.__module__.startswith("torch.optim") or kind is torch.optim.LBFGS:
        raise CannotDo(
            f"{setting} needs an optimizer of torch.optim that updates each parameter by itself; {kind.__name__} is "
            f"none that is known to; leave {instead}"
        )
    hooked = kind.step
    plain: Callable[[torch.optim.Optimizer], Any] = hooked.__wrapped__ if getattr(hooked, "hooked", False) else hooked
    return plain


def replace_step(optimizer: torch.optim.Optimizer, step: Callable[..., Any]) -> None:
    """``step(optimizer, closure)`` instead of the optimizer's own. Its hooks (and the tracer's) and learning-rate
    schedulers, made before or later, see one step as before."""
    optimizer.step = MethodType(make_scheduled_step(step), optimizer)  # bound, since schedulers look at its __func__


@contextmanager
def only(optimizer: torch.optim.Optimizer, group: Group, some: list[torch.Tensor]) -> Iterator[None]:
    """As if the optimizer had no parameters but ``some`` of a ``group``."""
    groups, everything = optimizer.param_groups, group["params"]
    group["params"], optimizer.param_groups = some, [group]
    try:
        yield
    finally:
        group["params"], optimizer.param_groups = everything, groups
