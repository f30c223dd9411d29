"""Fewer channels: a narrower copy of a network, cut out of it by structured pruning (the torch-pruning library).

    slim(model, lambda net: loss(net, batch()), 0.5, Tracer)     # half of the channels of every inner layer

Channels go in whole dependency groups, so that every layer still fits its neighbours; those with the smallest weights
go first, so that a pretrained network keeps the most of what it knows. What the loss looks at (class scores, box
regressions, mask logits) keeps its size.

The graph is found on fake tensors: no memory for a forward pass of the wide network is needed, which is the one that
does not fit.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from oomproof.changes.torch.on_fakes import FakeMode, each, empty, on_fakes, put
from oomproof.changes.torch.trees import tensors_of
from oomproof.errors import CannotDo, InputError, JobError, OomproofError
from oomproof.frameworks import torch_pruning
from oomproof.frameworks.torch import ConvBase, active_fake_mode, own_buffers, own_parameters, unset_fake_temporarily

Forward = Callable[[torch.nn.Module], Any]
"""Runs one forward pass; returns what the training looks at: a loss, a dict of losses, or outputs."""


def slim_factory(
    make_model: Callable[[], torch.nn.Module], forward: Forward, factor: float, fakes: Callable[[], FakeMode]
) -> Callable[[], torch.nn.Module]:
    """A model factory that makes the narrow network: of real tensors, or of fake ones where it is called in a trace."""

    def make() -> torch.nn.Module:
        if active_fake_mode() is None:
            return slim(make_model(), forward, factor, fakes)
        # Not in the running trace, whose Timeline must not show the wide network.
        with unset_fake_temporarily():
            with fakes() as mode:
                model = make_model()
                buffers = each(model, own_buffers, mode.compute)
            put(model, own_parameters, each(model, own_parameters, lambda weight: empty(weight, "meta")))
            put(model, own_buffers, buffers)
            slim(model, forward, factor, fakes)
        put(model, own_parameters, each(model, own_parameters, empty))
        return model

    return make


def slim(model: torch.nn.Module, forward: Forward, factor: float, fakes: Callable[[], FakeMode]) -> torch.nn.Module:
    """The model itself, with about ``factor`` of the channels of its inner layers."""
    if not 0 < factor <= 1:
        raise InputError(f"width={factor}: expected the part of the channels that stays, above 0 and up to 1, as 0.5")
    if factor == 1:
        return model
    trained = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    modes = [(module, module.training) for module in model.modules()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library tells of parameters whose dimension it guesses
        try:
            graph = _graph(model, _own_failures_apart(forward), fakes)
            if not _remove(graph, factor):
                raise CannotDo("the model has no inner convolution or linear layer whose channels may go; use width=1")
            with on_fakes(model, fakes):
                forward(model)
        except _ForwardFailed as failed:
            assert failed.__cause__ is not None
            raise failed.__cause__  # noqa: B904 (the wide model fails as well: no business of this module)
        except (InputError, JobError) as error:
            raise CannotDo(f"width={factor}: {error}") from error
        except OomproofError:
            raise
        except Exception as error:
            reason = (str(error).strip().splitlines() or [""])[0]
            raise CannotDo(
                f"width={factor}: the channels of this model depend on each other in a way that torch-pruning does not "
                f"find ({type(error).__name__}: {reason}); use width=1, or build the model narrower"
            ) from error
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trained[name])
    for module, training in modes:
        module.training = training
    return model


class _ForwardFailed(Exception):
    pass


def _own_failures_apart(forward: Forward) -> Forward:
    def run(model: torch.nn.Module) -> Any:
        try:
            return forward(model)
        except Exception as error:
            raise _ForwardFailed from error

    return run


# -- the graph ---------------------------------------------------------------------------------------------------


def _graph(model: torch.nn.Module, forward: Forward, fakes: Callable[[], FakeMode]) -> Any:
    """torch-pruning's DependencyGraph of the model."""
    library = torch_pruning.library()

    def run(net: torch.nn.Module, _: Any) -> list[torch.Tensor]:
        net.train()  # the library has set eval(), in which detectors have no loss
        for parameter in net.parameters():
            parameter.requires_grad_(parameter.is_floating_point())  # frozen layers are part of the graph too
        roots = [result.sum() for result in tensors_of(forward(net)) if result.requires_grad]
        if not roots:
            raise CannotDo("nothing that the model's forward pass returns depends on its parameters")
        return roots

    graph = library.DependencyGraph()
    with on_fakes(model, fakes) as real, torch.enable_grad():
        graph.build_dependency(model, None, forward_fn=run, customized_pruners=_own_pruners(library), verbose=False)
    torch_pruning.rename_parameters(graph, real)
    return graph


# -- the cut -----------------------------------------------------------------------------------------------------


def _remove(graph: Any, factor: float) -> int:
    """Takes channels out of every group that may lose some; returns how many groups did."""
    importance = torch_pruning.library().importance.GroupMagnitudeImportance()
    last = _without_loss(graph)
    users = Counter(id(p) for module in graph.model.modules() for p in own_parameters(module).values() if p is not None)
    chosen = []
    for group in graph.get_all_groups(ignored_layers=last):
        if any(_untouchable(dep.target.module, users) for dep, _ in group):
            continue
        channels = len(group[0].idxs)
        sections = math.lcm(*(_sections(dep.target.module) for dep, _ in group))
        if channels % sections:
            continue
        rank = _scores(importance, group, channels).view(sections, -1).mean(0).argsort().tolist()
        gone = rank[: len(rank) - max(1, round(len(rank) * factor))]
        idxs = [section * len(rank) + index for section in range(sections) for index in gone]
        chosen.append((group[0].dep.target.module, group[0].dep.handler, idxs))
    for module, handler, idxs in chosen:
        if idxs:
            graph.get_pruning_group(module, handler, idxs).prune()
    return len(chosen)


def _scores(importance: Any, group: Any, channels: int) -> torch.Tensor:
    scores = None if any(t.is_meta for dep, _ in group for t in _weights(dep.target.module)) else importance(group)
    return torch.arange(channels).float() if scores is None or len(scores) == 0 else scores.cpu()


def _untouchable(module: Any, users: Mapping[int, int]) -> bool:
    """Channels that are heads, gates or words cannot go one by one; nor can those of weights that two layers share."""
    if isinstance(module, (torch.nn.MultiheadAttention, torch.nn.LSTM, torch.nn.Embedding)):
        return True
    return isinstance(module, torch.nn.Module) and any(users[id(p)] > 1 for p in own_parameters(module).values())


def _weights(module: Any) -> Iterable[torch.Tensor]:
    return [module] if isinstance(module, torch.Tensor) else module.parameters()


def _sections(module: Any) -> int:
    """Parts of a layer's channels that must stay equally many."""
    if isinstance(module, torch.nn.GroupNorm):
        return int(module.num_groups)
    if isinstance(module, ConvBase) and module.groups < module.out_channels:
        return int(module.groups)
    return 1


def _without_loss(graph: Any) -> list[torch.nn.Module]:
    """Cuts off what lies between the last layers and the loss; returns those layers, whose outputs keep their size.

    The library would search long for channels in the hundreds of small operations of a detector's loss.
    """
    loss = _loss_region(graph)
    for node in loss:
        del graph.module2node[node.module]
    last = [module for module, node in graph.module2node.items() if any(after in loss for after in node.outputs)]
    for node in graph.module2node.values():
        node.outputs = [after for after in node.outputs if after not in loss]
        node.dependencies = [dep for dep in node.dependencies if dep.target not in loss]
    return last


def _loss_region(graph: Any) -> set[Any]:
    """Nodes between the last layers and the loss."""
    waiting = [node for node in graph.module2node.values() if node.type == graph.ops.OPTYPE.OUTPUT]
    seen = set(waiting)
    while waiting:
        for node in waiting.pop().inputs:
            if node not in seen and not _mixes(node.module):
                seen.add(node)
                waiting.append(node)
    return seen


def _mixes(module: Any) -> bool:
    """Every output channel is made of all input channels."""
    if isinstance(module, ConvBase):
        return not (module.groups == module.out_channels > 1)
    return isinstance(module, (torch.nn.Linear, torch.nn.MultiheadAttention, torch.nn.LSTM))


# -- the library -------------------------------------------------------------------------------------------------


def _own_pruners(library: Any) -> dict[type, Any]:
    """Layers that the library (1.6) does not know."""
    try:
        from torchvision.ops import FrozenBatchNorm2d
    except ImportError:
        return {}

    class FrozenBatchNormPruner(library.BasePruningFunc):  # type: ignore[misc]  # the library has no types
        def prune_out_channels(self, layer: Any, idxs: Any) -> Any:
            stay = sorted(set(range(len(layer.weight))) - set(idxs))
            for name in ("weight", "bias", "running_mean", "running_var"):
                setattr(layer, name, getattr(layer, name)[stay])
            return layer

        prune_in_channels = prune_out_channels

        def get_out_channels(self, layer: Any) -> int:
            return len(layer.weight)

        get_in_channels = get_out_channels

    return {FrozenBatchNorm2d: FrozenBatchNormPruner()}
