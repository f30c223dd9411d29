"""Gradients that are used the moment they are there, and freed (the ``gradients`` setting).

SGD with momentum adds gradients to its momentum, so every micro-batch's may go there straight away: it needs no memory
for gradients, however many micro-batches there are. Other optimizers need the whole gradient of a parameter: they
update it in backward, as soon as its gradient is there, where there is one micro-batch.

The optimizer stays what it is, with its hooks, schedulers, ``state_dict`` and ``load_state_dict``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import torch

from oomproof.changes.torch.some_parameters import Group, only, plain_step, replace_step
from oomproof.changes.torch.training import Training
from oomproof.errors import CannotDo, InputError
from oomproof.frameworks.torch import add_lists, hooks_after_gradient, hooks_before_step, multiply_lists

ANY: Final = "any"
ONE: Final = "one"
"""how many micro-batches an optimizer's gradients may be used at once for"""
_LEAVE = "gradients=kept"
_HOOKED = "the optimizer has a hook before its step, which would find no gradients"


def at_once_for(optimizer: torch.optim.Optimizer) -> Literal["", "any", "one"]:
    """``any`` number of micro-batches, ``one``, or an empty text: not with this optimizer."""
    try:
        plain_step(optimizer, "", "")
    except InputError:
        return ""
    if _has_hooks_before(optimizer):
        return ""
    return ANY if _adds_to_momentum(optimizer) else ONE


class AtOnce:
    """``take`` uses and frees the gradient of a parameter; it is called in backward for each of them."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._arrived: set[torch.Tensor] = set()
        self._groups: dict[torch.Tensor, Group] = {
            p: group for group in optimizer.param_groups for p in group["params"]
        }
        self._sums = _adds_to_momentum(optimizer)
        self._plain = plain_step(optimizer, "gradients=at_once", _LEAVE)
        self._hooks = [parameter.register_post_accumulate_grad_hook(self.take) for parameter in self._groups]
        replace_step(optimizer, self._finish)

    def release(self) -> None:
        """Gradients stay with the parameters again."""
        for hook in self._hooks:
            hook.remove()

    def expect(self, last: bool) -> None:
        """A micro-batch comes, the ``last`` of its step or not."""
        if _has_hooks_before(self.optimizer):
            raise CannotDo(f"gradients=at_once: {_HOOKED}; take the hook away, or {_LEAVE}")
        if not self._sums and not last:
            raise CannotDo(
                f"gradients=at_once with {type(self.optimizer).__name__} updates parameters in backward, so a step has "
                f"one micro-batch, and this one has more: take batches of one micro-batch, or {_LEAVE}"
            )

    def take(self, parameter: torch.Tensor) -> None:
        group = self._groups[parameter]
        with torch.no_grad():
            if self._sums:
                self._add_to_momentum(parameter, group)
            else:
                with only(self.optimizer, group, [parameter]):
                    self._plain(self.optimizer)
        self._arrived.add(parameter)
        parameter.grad = None

    def _add_to_momentum(self, parameter: torch.Tensor, group: Group) -> None:
        """The momentum decays once all gradients are there, so they are added as what decays to them."""
        gradient, state = parameter.grad, self.optimizer.state[parameter]
        assert gradient is not None
        share = (-1 if group["maximize"] else 1) / group["momentum"]
        if state.get("momentum_buffer") is None:
            state["momentum_buffer"] = gradient.detach().mul_(share)  # no copy: it becomes the momentum
        else:
            state["momentum_buffer"].add_(gradient, alpha=share)

    def _finish(self, optimizer: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        """What is left of the update once all gradients were taken. A ``closure`` is run, as step() would."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._sums:
            with torch.no_grad():
                for group in optimizer.param_groups:
                    self._move(group, [parameter for parameter in group["params"] if parameter in self._arrived])
        self._arrived.clear()
        return loss

    def _move(self, group: Group, parameters: list[torch.Tensor]) -> None:
        if not parameters:
            return
        momenta = [self.optimizer.state[parameter]["momentum_buffer"] for parameter in parameters]
        multiply_lists(momenta, group["momentum"])
        if group["weight_decay"]:
            add_lists(momenta, parameters, alpha=group["weight_decay"])
        if isinstance(group["lr"], torch.Tensor):
            for parameter, momentum in zip(parameters, momenta, strict=True):
                parameter.addcmul_(momentum, group["lr"], value=-1)
        else:
            add_lists(parameters, momenta, alpha=-group["lr"])


def at_once(model: torch.nn.Module, optimizer: torch.optim.Optimizer, training: Training) -> AtOnce | None:
    """Applies the setting; refuses what would make another training of it."""
    if any(_is_used_already(parameter) for group in optimizer.param_groups for parameter in group["params"]):
        raise InputError(
            "an earlier Step uses the gradients of these parameters at once, so another would find none: go on with "
            "that one, or make the model anew"
        )
    if training.gradients == "kept":
        return None
    if reason := _reason_not_to(model, optimizer, training):
        raise CannotDo(f"gradients=at_once: {reason}; leave {_LEAVE}")
    return AtOnce(optimizer)


def _reason_not_to(model: torch.nn.Module, optimizer: torch.optim.Optimizer, training: Training) -> str:
    at_odds = {
        "with fp16 gradients are scaled, and looked at together before they may be used (bf16 needs no scale)": (
            training.precision == "fp16"
        ),
        f"the optimizer's state has to be on the device in backward; it is to be on '{training.optimizer_state}'": (
            training.optimizer_state != "device"
        ),
        f"{type(model).__name__} exchanges gradients between GPUs after backward": hasattr(model, "no_sync"),
        _HOOKED: _has_hooks_before(optimizer),
        f"{type(optimizer).__name__} needs the sum of all micro-batches' gradients (SGD with momentum, without "
        "nesterov and dampening, can add each to its momentum)": training.accumulate > 1
        and not _adds_to_momentum(optimizer),
        "reentrant checkpointing may compute again with a parameter that was updated already": (
            training.checkpoint == "reentrant" and not _adds_to_momentum(optimizer)
        ),
    }
    return next((reason for reason, holds in at_odds.items() if holds), "")


def _is_used_already(parameter: torch.Tensor) -> bool:
    return any(isinstance(getattr(hook, "__self__", None), AtOnce) for hook in hooks_after_gradient(parameter))


def _adds_to_momentum(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer) is torch.optim.SGD and all(
        group["momentum"] and not group["nesterov"] and not group["dampening"] for group in optimizer.param_groups
    )


def _has_hooks_before(optimizer: torch.optim.Optimizer) -> bool:
    """Clipping, for instance."""
    return bool(hooks_before_step(optimizer))
