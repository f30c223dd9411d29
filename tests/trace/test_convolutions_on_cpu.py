"""What convolutions take on the CPU beyond their tensors, call by call against PyTorch's own allocator: one thread and
several take different kernels, and so do small images and wide filters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from oomproof.memory.scratch import cpu
from oomproof.memory.scratch.calls import Convolution, read_call
from oomproof.trace.torch.gpu.scratch import call_spec

Shape = tuple[int, ...]

EXACT: dict[str, tuple[Shape, Shape, int, int, int]] = {
    "1 x 1, few images": ((12, 464, 2, 2), (1024, 464, 1, 1), 1, 0, 1),
    "1 x 1, in groups": ((4, 64, 28, 28), (64, 8, 1, 1), 1, 0, 8),
    "1 x 1, one small image": ((1, 64, 14, 14), (64, 64, 1, 1), 1, 0, 1),
    "one small image": ((1, 64, 14, 14), (64, 64, 3, 3), 1, 1, 1),
    "one larger image": ((1, 64, 28, 28), (64, 64, 3, 3), 1, 1, 1),
    "16 x 16 of pictures": ((4, 3, 96, 96), (192, 3, 16, 16), 16, 0, 1),
    "16 x 16 of large pictures": ((2, 3, 512, 512), (192, 3, 16, 16), 16, 0, 1),
    "14 x 14 of pictures": ((2, 3, 224, 224), (384, 3, 14, 14), 14, 0, 1),
    "13 x 13 of pictures": ((2, 3, 256, 256), (96, 3, 13, 13), 13, 0, 1),
    "16 x 16 inside": ((2, 16, 128, 128), (32, 16, 16, 16), 16, 0, 1),
    "four channels": ((4, 4, 28, 28), (16, 4, 3, 3), 1, 1, 1),
    "one channel": ((4, 1, 28, 28), (16, 1, 3, 3), 1, 1, 1),
    "six channels": ((4, 6, 28, 28), (16, 6, 5, 5), 1, 2, 1),
    "fewer rows than the filter": ((2, 512, 2, 2), (512, 512, 3, 3), 1, 1, 1),
    "fewer rows than the filter, strided": ((4, 256, 2, 2), (512, 256, 3, 3), 2, 1, 1),
    "fewer rows than the filter, wide": ((4, 64, 2, 40), (128, 64, 3, 3), 1, 1, 1),
    "fewer rows than the filter, in groups": ((4, 64, 2, 6), (64, 16, 3, 3), 1, 1, 4),
    "fewer rows than the filter, large": ((2, 64, 4, 200), (64, 64, 5, 5), 1, 2, 1),
    "fewer columns than the filter": ((4, 64, 8, 2), (64, 64, 3, 3), 1, 1, 1),
}
"""input, weight, stride, padding, groups"""
SHARED: dict[str, tuple[Shape, Shape, int, int, int]] = {
    "1 x 1": ((4, 64, 28, 28), (256, 64, 1, 1), 1, 0, 1),
    "1 x 1, many images": ((16, 64, 28, 28), (256, 64, 1, 1), 1, 0, 1),
    "1 x 1, more weights than pixels": ((12, 232, 2, 2), (232, 232, 1, 1), 1, 0, 1),
    "stem": ((12, 3, 64, 64), (24, 3, 3, 3), 2, 1, 1),
}
"""of which threads may hold a part of the weight's gradient each"""
FEW_CHANNELS = 8


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def measure_peak(run: Any) -> tuple[Any, int]:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = run()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    return result, max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


def as_call(name: str, args: list[Any], outs: list[torch.Tensor]) -> Convolution:
    spec = call_spec(name, args, outs)
    found = read_call(json.dumps(spec))
    assert isinstance(found, Convolution)
    return found


def both_passes(case: tuple[Shape, Shape, int, int, int], threads: int) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Forward and backward: the real peak, and what is expected of it (expected, low, high), results included."""
    x, weight = torch.randn(case[0]), torch.randn(case[1])
    how = [[case[2]] * 2, [case[3]] * 2, [1, 1], False, [0, 0], case[4]]
    price = cpu.price(threads)

    def add_results(call: Convolution, results: list[torch.Tensor]) -> tuple[int, int, int]:
        expected, low, high = price(call)
        held = sum(each.numel() * each.element_size() for each in results)
        return expected + held, low + held, high + held

    given: list[Any] = [x, weight, None, *how]
    y, real = measure_peak(lambda: torch.ops.aten.convolution(*given))
    yield real, add_results(as_call("convolution", given, [y]), [y])
    given = [torch.randn_like(y), x, weight, None, *how, [case[0][1] >= FEW_CHANNELS, True, False]]
    gradients, real = measure_peak(lambda: torch.ops.aten.convolution_backward(*given))
    made = [each for each in gradients if each is not None]
    yield real, add_results(as_call("convolution_backward", given, made), made)


@pytest.mark.parametrize("name", EXACT)
def test_scratch_as_the_real_allocator_has_it(name: str, threads: int) -> None:
    for real, (expected, _, high) in both_passes(EXACT[name], threads):
        assert expected == pytest.approx(real, rel=0.005)
        assert real <= high * 1.002, "grouped ones keep small pieces of the weight"


@pytest.mark.parametrize("name", SHARED)
def test_upper_figure_covers_what_threads_share(name: str, threads: int) -> None:
    for real, (expected, low, high) in both_passes(SHARED[name], threads):
        assert low <= real <= high
        if threads == 1:
            assert expected == pytest.approx(real, rel=0.005)
