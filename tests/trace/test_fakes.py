"""Fake tensors that are made quickly are those that PyTorch makes."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

from oomproof.trace.torch.shapes.fakes import CPU, Fakes
from oomproof.trace.torch.shapes.forms import Form
from oomproof.trace.torch.tracer import Tracer


def test_made_as_the_constructor_makes_them() -> None:
    with FakeTensorMode() as mode:
        fakes = Fakes(mode)
        first, second = (fakes.make_tensors(Form((3, 4), (1, 3), torch.float16)) for _ in range(2))
        with in_kernel_invocation_manager(mode):
            plain = FakeTensor(mode, torch.empty(3, 4, device="meta"), CPU)
        assert vars(first) == vars(second) == vars(plain)
        assert type(second) is FakeTensor and second.device == CPU and second.stride() == (1, 3)
        assert torch._C._dispatch_keys(first) == torch._C._dispatch_keys(second) == torch._C._dispatch_keys(plain)


@pytest.mark.parametrize("allowed", [True, False])
def test_their_content_is_guarded_as_pytorch_does(allowed: bool) -> None:
    mode = FakeTensorMode()
    mode._allow_unsafe_data_ptr_access = allowed
    fakes = Fakes(mode)
    with mode:
        made = [fakes.make_tensors(Form((3,), (1,), torch.float32)) for _ in range(2)]
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        for each in made:
            with pytest.warns(UserWarning, match="is deprecated") if allowed else pytest.raises(RuntimeError):
                each.data_ptr()
    finally:
        torch.set_warn_always(always)


def test_numbers_given_in_code_are_looked_up_and_not_guessed() -> None:
    with Tracer() as tracer:
        three = torch.tensor(3)
        assert type(three) is FakeTensor and int(three * 2 + 1) == 7
        three.add_(1)
        assert three.item() == 4 and torch.tensor([1.5, 2.5]).tolist() == [1.5, 2.5]
        assert three.untyped_storage()._cdata in tracer.ledger.values


def test_a_view_shares_memory() -> None:
    with Tracer():
        x = torch.empty(4, 6)
        views = [x.t(), x[1:3], x[0], x.unsqueeze(0), x.expand(2, 4, 6), *x.unbind(1), *x.split(2), x.detach()]
        assert {view.untyped_storage()._cdata for view in views} == {x.untyped_storage()._cdata}
        assert [tuple(view.shape) for view in views[:5]] == [(6, 4), (2, 6), (6,), (1, 4, 6), (2, 4, 6)]
        with pytest.raises(IndexError):
            x.unbind(2)


def test_pytorch_is_left_as_it_was_by_a_view_that_fails() -> None:
    with Tracer() as tracer:
        x = torch.empty(4, 6)
        with pytest.raises(RuntimeError, match="invalid for input of size 24"):
            x.view(5, 5)
        assert not tracer.in_kernel_invocation and not torch._C._meta_in_tls_dispatch_include()
        assert x.t().device == CPU and (x + 1).shape == x.shape
