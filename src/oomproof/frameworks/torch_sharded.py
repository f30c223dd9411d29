"""All that oomproof uses of FSDP2 (torch.distributed.fsdp.fully_shard) beyond its documented interface.

Made for PyTorch 2.14, which can begin an iteration anew after an error; older versions are told when a guard needs it.
"""

from __future__ import annotations

from typing import Any

import torch

from oomproof.errors import UnsupportedVersion


def find_sharded_modules(model: torch.nn.Module) -> list[Any]:
    """The modules that fully_shard was called on; empty for any other model."""
    try:
        from torch.distributed.fsdp import FSDPModule
    except ImportError:  # PyTorch 2.4 has it elsewhere, and no guard for it
        return []
    return [module for module in model.modules() if isinstance(module, FSDPModule)]


def root_state(model: Any) -> Any:
    state = model._get_fsdp_state()
    for name in ("_reset_iter_state", "_root_post_backward_final_callback", "_lazy_init"):
        if not hasattr(state, name):
            raise UnsupportedVersion(
                f"Guard needs fully_shard of PyTorch 2.14, which can begin a step anew; {torch.__version__} cannot"
            )
    return state


def start_sharding(state: Any) -> None:
    """What the first forward pass would do: who is whose root."""
    state._lazy_init()


def forget_iteration(state: Any) -> None:
    """After an error in forward or backward: every state as before the iteration, parameters sharded, no gradients."""
    state._reset_iter_state()
    for group in (group for each in state._state_ctx.all_states for group in each._fsdp_param_groups):
        for parameter in group.fsdp_params:  # 2.14.1 leaves the gradients of gathered parameters where they are
            parameter.unsharded_accumulated_grad = None
            if hasattr(parameter, "_unsharded_param"):
                parameter._unsharded_param.grad = None


def reduce_gradients(state: Any) -> None:
    """Exchanges the gradients that were kept back."""
    state._root_post_backward_final_callback()
