"""All that oomproof uses of PyTorch beyond its documented interface, each thing under a plain name.

Made for PyTorch 2.4 to 2.14; every name was last looked at in 2.14.1 and tried in 2.4.1. A version that lacks one is
told when this file is imported, which is where PyTorch is first used. Operators whose names begin with an underscore
are here where code calls them; where code only compares names (trace/torch), a missing one does no harm. How models are
moved is in torch_moving.py.
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch.optim import optimizer as _optimizers
from torch.optim import swa_utils as _averages
from torch.utils.data import IterableDataset

from oomproof.frameworks.versions import TORCH

with TORCH.names_needed():
    from torch._guards import active_fake_mode  # the FakeTensorMode that is entered, or None
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,  # what FakeTensorMode raises where only values would tell ...
        DynamicOutputShapeException,  # ... the shape of a result
        FakeTensor,
        FakeTensorMode,
        UnsupportedOperatorException,  # ... or where an operation has no kernel for shapes
        unset_fake_temporarily,  # real tensors for a while, inside a trace
    )
    from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
    from torch.nn.modules.conv import _ConvNd
    from torch.nn.modules.module import _IncompatibleKeys
    from torch.utils import _device as _default_devices
    from torch.utils import _foreach_utils
    from torch.utils._python_dispatch import TorchDispatchMode  # sees every operation while it is entered
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    LoadedKeys = _IncompatibleKeys  # what load_state_dict returns: missing and unexpected keys
    DataLoaderIterator = _BaseDataLoaderIter  # what iter(DataLoader(...)) gives
    BatchNormBase = _BatchNorm  # parent of BatchNorm1d, 2d, 3d and SyncBatchNorm
    NormBase = _NormBase  # parent of all layers with running statistics, InstanceNorm too
    ConvBase = _ConvNd  # parent of all convolutions

    # -- which kernels are asked -----------------------------------------------------------------------------------
    autocast_keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)  # the dispatch key of CPU autocast
    WithoutKeys = torch._C._ExcludeDispatchKeyGuard  # with WithoutKeys(autocast_keys): autocast is not asked
    WithoutTorchDispatch = torch._C._DisableTorchDispatch  # plain kernels, no mode and no subclass is asked
    BelowAutograd = torch._C._AutoDispatchBelowAutograd  # no autograd is recorded, and none is checked
    KeptKeys = torch._C._PreserveDispatchKeyGuard  # dispatch keys are afterwards as they were
    ask_meta_kernels = torch._C._set_meta_in_tls_dispatch_include  # a fake tensor's kernels are those of shapes
    kernels_of_key = torch._C._dispatch_get_registrations_for_dispatch_key  # operators with a kernel for a key

    # -- autograd ----------------------------------------------------------------------------------------------------
    current_node = torch._C._current_autograd_node  # the node that backward runs now, or None
    current_backward = torch._C._current_graph_task_id  # the number of the running backward pass, or -1
    in_transform = torch._C._functorch.is_functorch_wrapped_tensor  # of torch.vmap or torch.func: no storage of its own
    next_node_number = torch.autograd._get_sequence_nr  # the number that the next node of the graph will have

    # -- operators -----------------------------------------------------------------------------------------------------
    multiply_lists = torch._foreach_mul_  # all tensors of a list at once, in place
    add_lists = torch._foreach_add_
    is_dense = torch.ops.aten.is_non_overlapping_and_dense.default  # no gaps between a tensor's numbers
    copy_lists = torch._foreach_copy_  # copy_lists(to, from)
    unsafe_view = torch.ops.aten._unsafe_view.default
    copy_to = torch.ops.aten._to_copy.default  # what ``tensor.to`` comes down to
    softmaxes = (torch.ops.aten._softmax.default, torch.ops.aten._log_softmax.default)
    softmax_backwards = (
        torch.ops.aten._softmax_backward_data.default,
        torch.ops.aten._log_softmax_backward_data.default,
    )
    batch_norm = torch.ops.aten._batch_norm_impl_index  # what torch.batch_norm comes down to
    flash_attention = torch.ops.aten._scaled_dot_product_flash_attention
    efficient_attention = torch.ops.aten._scaled_dot_product_efficient_attention
    plain_attention = torch.ops.aten._scaled_dot_product_attention_math
    cudnn_rnn = torch.ops.aten._cudnn_rnn.default
    cudnn_rnn_backward = torch.ops.aten._cudnn_rnn_backward.default
    fused_lstm_cell = torch.ops.aten._thnn_fused_lstm_cell.default
    fused_lstm_cell_backward = torch.ops.aten._thnn_fused_lstm_cell_backward_impl.default
    fused_gru_cell = torch.ops.aten._thnn_fused_gru_cell.default
    fused_gru_cell_backward = torch.ops.aten._thnn_fused_gru_cell_backward.default

    # -- fake tensors, made without their constructor ------------------------------------------------------------------
    make_subclass = torch.Tensor._make_subclass
    warn_of_data_ptr = torch._C._set_warn_deprecated_on_mutable_data_ptr  # what a fake tensor does when its memory ...
    refuse_data_ptr = torch._C._set_throw_on_mutable_data_ptr  # ... is asked for

storage_key = attrgetter("_cdata")
"""storage_key(tensor.untyped_storage()): one number for all tensors that share it. An attrgetter: it is asked ten
times for an operation."""
version_of = attrgetter("_version")
"""how often a tensor was written to"""
schema_of = attrgetter("_schema")
"""an operator's declaration: its name, arguments and results"""

FAKE_TENSOR_LOG = "torch._subclasses.fake_tensor"
"""the logger to which FakeTensorMode tells failures of an operation, before it raises them"""
SYMBOLIC_TRACE_LOG = "torch.fx._symbolic_trace"

DYNAMO = "torch._dynamo"
"""the compiler's front; PyTorch and torchvision load it for small things, in seconds"""
DYNAMO_FOLDER = Path(torch.__file__).parent / "_dynamo"
DYNAMO_MARK = "__dynamo_disable"
"""the attribute where PyTorch keeps a function's other self, which is not compiled"""


def probe() -> None:
    """Looks for what belongs to objects rather than modules, so that no import misses it."""
    TORCH.check(
        (torch.UntypedStorage, "_cdata"),
        (torch.Tensor, "_version"),
        (torch.ops.aten.add.Tensor, "_schema"),
        (torch.library.Library, "_destroy"),
        (torch.nn.Module, "_apply"),
        (torch.nn.Identity(), "_parameters"),
        (torch.nn.Identity(), "_buffers"),
        (torch.optim.Optimizer, "profile_hook_step"),
        (_default_devices, "CURRENT_DEVICE"),
        (_default_devices, "_device_constructors"),
        (_optimizers, "_foreach_supported_types"),
        (_foreach_utils, "_foreach_supported_types"),
        (_optimizers, "_get_foreach_kernels_supported_devices"),
        (_averages, "_get_foreach_kernels_supported_devices"),
    )


# -- modules -----------------------------------------------------------------------------------------------------------


def half_on_cpu() -> bool:
    """Whether oneDNN has kernels for bf16 on this CPU."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) if torch.backends.mkldnn.is_available() else False


def own_parameters(module: torch.nn.Module) -> dict[str, torch.nn.Parameter | None]:
    """A module's own parameters by name, as it keeps them: may be written to. (named_parameters leaves out what is None
    or shared.)"""
    kept: dict[str, torch.nn.Parameter | None] = module._parameters
    return kept


def own_buffers(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    """A module's own buffers by name, as it keeps them: may be written to."""
    kept: dict[str, torch.Tensor | None] = module._buffers
    return kept


def without_cuda_start() -> AbstractContextManager[Any]:
    """Naming a GPU starts nothing: tensors for it are made by a dispatch mode."""
    return patch.object(torch.cuda, "_lazy_init", lambda: None)


@contextmanager
def tensors_lifted_on_cpu() -> Iterator[None]:
    """``torch.tensor(data, device="cuda")`` makes its tensor on the CPU and moves it, so that dispatch modes see it.
    (FakeTensorMode sets the same, and the guard that needs no driver, while it is entered.)"""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    torch._C._ensureCUDADeviceGuardSet()
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


def parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) of the arguments of ``tensor.to``."""
    parsed: tuple[Any, Any, bool, Any] = torch._C._nn._parse_to(*args, **kwargs)
    return parsed


# -- autograd ----------------------------------------------------------------------------------------------------------


def node_number(node: Any) -> int:
    """Nodes of the graph are numbered as they are made."""
    number: int = node._sequence_nr()
    return number


def keeps_result(kind: type) -> bool:
    """Whether autograd nodes of a kind keep what their operation returned. Only the names are looked at: to ask a node
    for a saved tensor may compute it again."""
    return any(name.startswith(("_saved_result", "_saved_output")) for name in dir(kind))


def hooks_on_gradient(tensor: torch.Tensor) -> list[Any]:
    """What ``tensor.register_hook`` has registered."""
    return list((getattr(tensor, "_backward_hooks", None) or {}).values())


def hooks_after_gradient(parameter: torch.Tensor) -> list[Any]:
    """What register_post_accumulate_grad_hook has registered."""
    return list((getattr(parameter, "_post_accumulate_grad_hooks", None) or {}).values())


# -- optimizers --------------------------------------------------------------------------------------------------------


def hooks_before_step(optimizer: torch.optim.Optimizer) -> list[Any]:
    """What register_step_pre_hook has registered."""
    return list(optimizer._optimizer_step_pre_hooks.values())


def make_scheduled_step(step: Callable[..., Any]) -> Callable[..., Any]:
    """An optimizer's step that its hooks see, and that learning-rate schedulers take for one that they know."""
    hooked = torch.optim.Optimizer.profile_hook_step(step)

    def step_for_schedulers(self: Any, *given: Any, **named: Any) -> Any:
        self._opt_called = True  # what schedulers look for, to warn of a forgotten step
        return hooked(self, *given, **named)

    vars(step_for_schedulers)["_wrapped_by_lr_sched"] = True  # schedulers look for that too
    return step_for_schedulers


@contextmanager
def batches_drawn_by(redraw: Callable[[Iterator[Any], int], Iterator[Any]]) -> Iterator[None]:
    """Loaders of a dataset with indices and a length draw their batches from ``redraw(drawn, length)``."""
    draw, redrawn = _BaseDataLoaderIter._next_index, weakref.WeakKeyDictionary[Any, Any]()

    def next_index(iterator: Any) -> Any:
        if redrawn.get(iterator) is not iterator._sampler_iter:  # a new epoch
            if not isinstance(iterator._dataset, IterableDataset):
                with suppress(TypeError, NotImplementedError):  # a sampler without an end has no length
                    iterator._sampler_iter = redraw(iterator._sampler_iter, len(iterator._index_sampler))
            redrawn[iterator] = iterator._sampler_iter
        return draw(iterator)

    with patch.object(_BaseDataLoaderIter, "_next_index", next_index):
        yield


def default_device() -> torch.device | None:
    """What ``torch.set_default_device`` or ``with torch.device(...)`` has named."""
    named: torch.device | None = _default_devices.CURRENT_DEVICE
    return named


def learn_factories() -> None:
    """``with torch.device(...)`` remembers the functions that make tensors as it first finds them, for good."""
    _default_devices._device_constructors()


@contextmanager
def lists_of_fakes() -> Iterator[None]:
    """List-at-once updates, which refuse tensor types that they do not know, take fake tensors."""
    with ExitStack() as stack:
        for module in (_optimizers, _foreach_utils):
            known = [*module._foreach_supported_types, FakeTensor]
            stack.enter_context(patch.object(module, "_foreach_supported_types", known))
        yield


@contextmanager
def lists_by_default() -> Iterator[None]:
    """Optimizers and averaged models update CPU parameters list at once without being asked, as they do on a GPU."""
    with ExitStack() as stack:
        for module in (_optimizers, _averages):
            stack.enter_context(patch.object(module, "_get_foreach_kernels_supported_devices", lambda: ["cpu", "cuda"]))
        yield


# -- modes, libraries, the compiler ------------------------------------------------------------------------------------


def allows_data_ptr(mode: FakeTensorMode) -> bool:
    return bool(mode._allow_unsafe_data_ptr_access)


def take_back(library: torch.library.Library) -> None:
    """Removes the kernels that a library has registered."""
    library._destroy()


def unwrap_compiled(model: Any) -> Any:
    """The module inside what ``torch.compile`` has made of it."""
    while isinstance(model, torch.nn.Module) and "_orig_mod" in model._modules:
        model = model._orig_mod
    return model


def running_eagerly() -> AbstractContextManager[Any]:
    """What was compiled runs as if it were not; for processes in which the compiler is loaded."""
    if hasattr(torch.compiler, "set_stance"):  # from 2.6 on
        stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
        return stance
    switched_off: AbstractContextManager[Any] = importlib.import_module(f"{DYNAMO}.config").patch(disable=True)
    return switched_off


def forget_dynamo(module: ModuleType) -> None:
    """``import torch._dynamo`` has left the module as an attribute of torch too."""
    if vars(torch).get("_dynamo") is module:
        del torch._dynamo


probe()

__all__ = [
    "DYNAMO",
    "DYNAMO_FOLDER",
    "DYNAMO_MARK",
    "FAKE_TENSOR_LOG",
    "SYMBOLIC_TRACE_LOG",
    "BatchNormBase",
    "BelowAutograd",
    "ConvBase",
    "DataDependentOutputException",
    "DataLoaderIterator",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "KeptKeys",
    "LoadedKeys",
    "NormBase",
    "TorchDispatchMode",
    "UnsupportedOperatorException",
    "WithoutKeys",
    "WithoutTorchDispatch",
    "active_fake_mode",
    "add_lists",
    "allows_data_ptr",
    "ask_meta_kernels",
    "autocast_keys",
    "batch_norm",
    "batches_drawn_by",
    "copy_lists",
    "copy_to",
    "cudnn_rnn",
    "cudnn_rnn_backward",
    "current_backward",
    "current_node",
    "default_device",
    "efficient_attention",
    "flash_attention",
    "forget_dynamo",
    "fused_gru_cell",
    "fused_gru_cell_backward",
    "fused_lstm_cell",
    "fused_lstm_cell_backward",
    "hooks_after_gradient",
    "hooks_before_step",
    "hooks_on_gradient",
    "is_dense",
    "keeps_result",
    "kernels_of_key",
    "learn_factories",
    "lists_by_default",
    "lists_of_fakes",
    "make_scheduled_step",
    "make_subclass",
    "multiply_lists",
    "next_node_number",
    "node_number",
    "own_buffers",
    "own_parameters",
    "parse_to",
    "plain_attention",
    "probe",
    "refuse_data_ptr",
    "running_eagerly",
    "schema_of",
    "softmax_backwards",
    "softmaxes",
    "storage_key",
    "take_back",
    "tensors_lifted_on_cpu",
    "unsafe_view",
    "unset_fake_temporarily",
    "unwrap_compiled",
    "version_of",
    "warn_of_data_ptr",
    "without_cuda_start",
]  # fmt: skip
