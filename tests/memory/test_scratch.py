"""Scratch of kernels: on the CPU against single convolutions that really run, on a GPU against arithmetic by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oomproof.memory.cards.devices import find_device
from oomproof.memory.scratch import Price, cpu, cuda, price_calls
from oomproof.memory.timeline import Builder

MIB = 1 << 20
THREADS = 2


def price_of(spec: Mapping[str, Any], price: Price) -> tuple[int, int, int]:
    step = Builder()
    step.call(owner="net", spec=spec)
    expected, low, high = price_calls(step.build(), price)
    return int(expected[0]), int(low[0]), int(high[0])


# -- the CPU: measured -------------------------------------------------------------------------------------------

BOTH, X_ALONE, W_ALONE = (True, True, False), (True, False, False), (False, True, False)


def shape(x: tuple[int, ...], w: tuple[int, ...], **how: Any) -> dict[str, Any]:
    usual = {"stride": 1, "padding": 1, "dilation": 1, "transposed": False, "groups": 1, "channels_last": False}
    return {"x": x, "w": w, **usual, "wants": BOTH, **how}


BODY = ((4, 64, 56, 56), (64, 64, 3, 3))
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "3x3": shape(*BODY),
    "3x3, gradient of x alone": shape(*BODY, wants=X_ALONE),
    "3x3, gradient of w alone": shape(*BODY, wants=W_ALONE),
    "channels that fill no block": shape((4, 20, 56, 56), (36, 20, 3, 3)),
    "1x1": shape((4, 64, 56, 56), (128, 64, 1, 1), padding=0),
    "images of three channels": shape((4, 3, 112, 112), (64, 3, 7, 7), stride=2, padding=3, wants=W_ALONE),
    "strided": shape((4, 64, 56, 56), (128, 64, 3, 3), stride=2),
    "strided, gradient of w alone": shape((4, 64, 56, 56), (128, 64, 3, 3), stride=2, wants=W_ALONE),
    "dilated": shape(*BODY, padding=2, dilation=2),
    "dilated, one image": shape((1, 64, 56, 56), (64, 64, 3, 3), padding=2, dilation=2),
    "dilated, small output": shape((4, 64, 20, 20), (64, 64, 3, 3), padding=2, dilation=2),
    "depthwise": shape((4, 64, 56, 56), (64, 1, 3, 3), groups=64),
    "depthwise, strided": shape((4, 64, 56, 56), (64, 1, 3, 3), groups=64, stride=2),
    "transposed": shape((4, 64, 28, 28), (64, 32, 2, 2), stride=2, padding=0, transposed=True),
    "transposed 4x4": shape((4, 64, 28, 28), (64, 64, 4, 4), stride=2, transposed=True),
    "channels_last": shape(*BODY, channels_last=True),
    "channels_last 1x1": shape((4, 64, 56, 56), (128, 64, 1, 1), padding=0, channels_last=True),
    "channels_last, depthwise": shape((4, 64, 56, 56), (64, 1, 3, 3), groups=64, channels_last=True),
}


SMALL = ((4, 32, 64, 64), (16, 32, 3, 3))
HALF: dict[str, dict[str, Any]] = {
    "plain": shape(*SMALL, dtype="bfloat16"),
    "channels_last": shape(*SMALL, dtype="bfloat16", channels_last=True),
    "strided": shape(*SMALL, dtype="bfloat16", stride=2),
    "gradient of x alone": shape(*SMALL, dtype="bfloat16", wants=X_ALONE),
    "1x1": shape(SMALL[0], (16, 32, 1, 1), dtype="bfloat16", padding=0),
    "in groups": shape(SMALL[0], (32, 8, 3, 3), dtype="bfloat16", groups=4),
    "transposed": shape(SMALL[0], (32, 16, 2, 2), dtype="bfloat16", stride=2, padding=0, transposed=True),
}


def run_for_real(case: Mapping[str, Any]) -> list[tuple[dict[str, Any], int]]:
    """(spec, bytes beyond the results) of a convolution and of its backward, as PyTorch's allocator has them."""
    import torch

    from oomproof.trace.torch.gpu.scratch import call_spec

    layout = torch.channels_last if case["channels_last"] else torch.contiguous_format
    dtype = getattr(torch, case.get("dtype", "float32"))
    x, w = (torch.rand(case[name]).to(dtype).contiguous(memory_format=layout) for name in ("x", "w"))
    sides = [[case[name]] * 2 for name in ("stride", "padding", "dilation")]
    how = (*sides, case["transposed"], [0, 0], case["groups"])
    y, forward = _extra(lambda: torch.ops.aten.convolution(x, w, None, *how))
    arguments = (torch.rand_like(y), x, w, None, *how, list(case["wants"]))
    _, backward = _extra(lambda: torch.ops.aten.convolution_backward(*arguments))
    specs = call_spec("convolution", (x, w, None, *how), [y]), call_spec("convolution_backward", arguments, [])
    return list(zip(specs, (forward, backward), strict=True))  # type: ignore[arg-type]


def _extra(run: Any) -> tuple[Any, int]:
    import torch
    from torch.profiler import ProfilerActivity, profile

    run()  # the first run also builds what oneDNN keeps
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        out = run()
    events = (e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]")
    live = most = 0
    for _, change in sorted((event.start_ns(), event.nbytes()) for event in events):
        live += change
        most = max(most, live)
    results = [out] if isinstance(out, torch.Tensor) else [tensor for tensor in out if tensor is not None]
    return results[0], most - sum(tensor.untyped_storage().nbytes() for tensor in results)


@pytest.fixture(scope="module")
def measured() -> dict[str, list[tuple[dict[str, Any], int]]]:
    """In a process of its own, where oneDNN takes AVX2's kernels: those of AVX-512 pad channels to 16, not 8."""
    torch = pytest.importorskip("torch")
    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip(f"prices are AVX2's; this CPU is {torch.backends.cpu.get_cpu_capability()}")
    sources = os.pathsep.join([str(Path(cpu.__file__).parents[3]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "PYTHONPATH": sources}
    ran = subprocess.run([sys.executable, __file__], capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_forward_on_the_cpu(name: str, measured: dict[str, Any]) -> None:
    spec, real = measured[name][0]
    assert spec["op"] == "convolution"
    expected, low, high = price_of(spec, cpu.price(THREADS))
    assert low <= real <= high
    assert expected == pytest.approx(real, rel=0.02, abs=_small(name))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_backward_on_the_cpu(name: str, measured: dict[str, Any]) -> None:
    spec, real = measured[name][1]
    assert spec["op"] == "convolution_backward"
    expected, low, _ = price_of(spec, cpu.price(THREADS))
    assert low <= real
    assert expected == pytest.approx(real, rel=0.02, abs=_small(name))


@pytest.mark.parametrize("name", HALF)
def test_bf16_goes_through_columns_where_onednn_does_not_take_it(name: str) -> None:
    pytest.importorskip("torch")
    from oomproof.frameworks.torch import half_on_cpu

    if half_on_cpu():
        pytest.skip("oneDNN takes bf16 on this CPU")
    for spec, real in run_for_real(HALF[name]):
        expected, low, high = price_of(spec, cpu.price(1, half=False))
        assert low <= real and expected == high == pytest.approx(real, rel=0.02, abs=1024)


def _small(name: str) -> int:
    """Where tensors are channels_last only weights are copied, some of them twice: a fraction of a MiB."""
    return 160 * 1024 if name.startswith("channels_last") else 1024


def test_what_is_no_convolution_takes_nothing_on_the_cpu() -> None:
    assert price_of({"op": "sort", "elements": 1000, "item": 4}, cpu.price(THREADS)) == (0, 0, 0)


# -- CUDA: by hand -----------------------------------------------------------------------------------------------

X, W, Y = 8 * 64 * 32 * 32 * 4, 128 * 64 * 3 * 3 * 4, 8 * 128 * 32 * 32 * 4
CONVOLUTION: dict[str, Any] = {
    "op": "convolution",
    "x": [8, 64, 32, 32],
    "w": [128, 64, 3, 3],
    "y": [8, 128, 32, 32],
    "stride": [1, 1],
    "padding": [1, 1],
    "dilation": [1, 1],
    "transposed": False,
    "groups": 1,
    "dtype": "float32",
    "item": 4,
    "channels_last": False,
}
TENSOR_CORES, OLDER, SIZE = (
    cuda.price(find_device("RTX 3060")),
    cuda.price(find_device("GTX 1080 Ti")),
    cuda.price(find_device("8GiB")),
)
WINOGRAD = 36 * (X + Y) // 16 + 4 * W


@pytest.mark.parametrize("op", ["convolution", "convolution_backward"])
def test_tensor_cores_convert_what_is_not_channels_last(op: str) -> None:
    spec = CONVOLUTION | {"op": op, "wants": [True, True, False]}
    assert price_of(spec, TENSOR_CORES) == (int(cuda.CONVERTED * (X + W + Y)), 0, X + W + Y)
    assert price_of(spec | {"channels_last": True}, TENSOR_CORES)[:2] == (0, 0)
    assert price_of(spec, SIZE) == price_of(spec, TENSOR_CORES), "a plain size is taken for a GPU of today"
    assert price_of(spec, cuda.price(find_device("RTX 2080 Ti"))) == price_of(spec, OLDER), "Turing's have no TF32"


def test_older_gpus_use_winograds_way_for_plain_3x3() -> None:
    assert price_of(CONVOLUTION, OLDER)[:2] == (WINOGRAD, 0)
    assert price_of(CONVOLUTION, OLDER)[2] >= WINOGRAD
    others = ({"stride": [2, 2]}, {"dilation": [2, 2]}, {"groups": 2}, {"w": [128, 64, 5, 5]}, {"w": [128, 64, 1, 1]})
    for other in others:
        assert price_of(CONVOLUTION | other, OLDER)[0] == 0, other


def test_half_precision_is_a_matter_of_tensor_cores_on_every_gpu() -> None:
    half = CONVOLUTION | {"dtype": "float16", "item": 2}
    assert price_of(half, OLDER) == price_of(half, TENSOR_CORES)
    assert price_of(half, TENSOR_CORES)[2] == (X + W + Y) // 2


def test_depthwise() -> None:
    depthwise = CONVOLUTION | {"groups": 64, "w": [64, 1, 3, 3], "y": [8, 64, 32, 32]}
    for price in (TENSOR_CORES, OLDER):
        assert price_of(depthwise, price) == (0, 0, 9 * X), "at worst im2col: nine taps of x"
    large = depthwise | {"w": [64, 1, 31, 31]}
    assert price_of(large, TENSOR_CORES)[2] == cuda.LARGEST_IM2COL * X < 31 * 31 * X, "no wider than was seen"
    strided = depthwise | {"y": [8, 64, 16, 16], "stride": [2, 2]}
    assert price_of(strided, TENSOR_CORES)[2] == 9 * X // 4, "the filter is put down at a quarter of the places"
    widening = depthwise | {"y": [8, 64, 64, 64], "stride": [2, 2], "transposed": True}
    assert price_of(widening, TENSOR_CORES)[2] == 9 * X, "transposed: at every place of x"
    single = CONVOLUTION | {"x": [8, 1, 32, 32], "w": [128, 1, 3, 3]}
    assert price_of(single, TENSOR_CORES)[0] > 0, "one group of one channel is not a depthwise convolution"


def test_benchmark_mode_may_choose_a_fourier_transform() -> None:
    benchmark = cuda.price(find_device("RTX 3060"), benchmark=True)
    tile = 32 * 17 * 8
    tiles = 2 * 2  # of 32 pixels in a row a tile computes 30, the other two are the edge that three taps reach
    wide = CONVOLUTION | {"x": [8, 64, 60, 60], "y": [8, 128, 60, 60]}
    assert price_of(wide, benchmark)[2] == (8 * tiles * (64 + 128) + 64 * 128) * tile
    assert price_of(CONVOLUTION, benchmark)[:2] == price_of(CONVOLUTION, TENSOR_CORES)[:2]
    strided = CONVOLUTION | {"stride": [2, 2]}
    assert price_of(strided, benchmark) == price_of(strided, TENSOR_CORES), "a Fourier transform does not skip pixels"
    pointwise = CONVOLUTION | {"w": [128, 64, 1, 1]}
    assert price_of(pointwise, benchmark)[2] == (8 * 2 * 2 * (64 + 128) + 64 * 128) * 16 * 9 * 8, "in smaller tiles"
    grouped = CONVOLUTION | {"w": [128, 32, 3, 3], "groups": 2}
    assert price_of(grouped, benchmark)[2] == max(9 * X, (8 * tiles * (64 + 128) + 64 * 64) * tile), "or by im2col"
    large = CONVOLUTION | {"x": [512, 64, 320, 320], "y": [512, 128, 320, 320]}
    everything = (512 * 64 + 512 * 128) * 320 * 320 * 4 + W
    assert price_of(large, benchmark)[2] == max(cuda.LARGEST_FOURIER, everything)
    limited = cuda.price(find_device("RTX 3060"), benchmark=True, largest=cuda.LARGEST_OF_TENSORFLOW)
    deep = CONVOLUTION | {"x": [16, 2048, 28, 28], "w": [2048, 2048, 3, 3], "y": [16, 2048, 28, 28]}
    assert price_of(deep, limited)[2] == 4 << 30 < price_of(deep, benchmark)[2]


def test_volumes() -> None:
    volume = CONVOLUTION | {"x": [1, 8, 16, 16, 16], "w": [8, 8, 3, 3, 3], "y": [1, 8, 16, 16, 16]}
    volume |= {name: [1, 1, 1] for name in ("stride", "padding", "dilation")}
    assert price_of(volume, TENSOR_CORES)[2] == (2 * 8 * 16**3 + 8 * 8 * 27) * 4
    assert price_of(volume, OLDER)[0] == 0, "Winograd's way is for images"


def test_kernels_of_pytorch_itself() -> None:
    assert price_of({"op": "nms", "elements": 1000}, TENSOR_CORES) == (1000 * 16 * 8,) * 3, "a bit for every pair"
    assert price_of({"op": "nms", "elements": 64}, TENSOR_CORES)[0] == 64 * 8
    assert price_of({"op": "nms", "elements": 65}, TENSOR_CORES)[0] == 65 * 2 * 8
    sort = {"op": "sort", "elements": 1000, "item": 4}
    assert price_of(sort, TENSOR_CORES) == (12000, 0, 32000), "a second buffer of keys and indices, and its places"
    assert price_of(sort | {"op": "topk"}, TENSOR_CORES) == (12000, 0, 44000), "few long rows are sorted whole"
    assert price_of(sort | {"op": "_unique2"}, TENSOR_CORES) == (12000, 0, 56000), "results as long as the argument"
    gathered = {"op": "index_put_", "elements": 1000, "item": 48, "copied": 500}
    assert price_of(gathered, TENSOR_CORES) == (48500, 0, 48500)
    for scan in ("nonzero", "cumsum"):
        assert price_of({"op": scan, "elements": 1000, "item": 1}, TENSOR_CORES) == (0, 0, 8000)
    assert price_of({"op": "nms", "elements": 0}, TENSOR_CORES) == (0, 0, 0)


def test_every_call_gets_the_price_of_its_spec() -> None:
    step = Builder()
    for elements in (100, 200, 100):
        step.call(owner="net", spec={"op": "sort", "elements": elements, "item": 4})
    expected, low, high = price_calls(step.build(), TENSOR_CORES)
    assert expected.tolist() == [1200, 2400, 1200]
    assert (low.tolist(), high.tolist()) == ([0] * 3, [3200, 6400, 3200])
    assert [len(column) for column in price_calls(Builder().build(), TENSOR_CORES)] == [0, 0, 0]


if __name__ == "__main__":
    import torch

    torch.set_num_threads(THREADS)
    print(json.dumps({name: run_for_real(case) for name, case in CONVOLUTIONS.items()}))
