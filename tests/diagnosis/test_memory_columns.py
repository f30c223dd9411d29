"""Memory that a log itself reports is read in whatever form it is printed."""

from __future__ import annotations

import pytest

import oomproof
from oomproof.diagnosis.facts import Trend
from oomproof.diagnosis.gather import gather
from oomproof.diagnosis.reading import keep_parts

MIB, GIB = 1 << 20, 1 << 30
OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9.90 GiB already "
    "allocated; 12.00 MiB free; 10.10 GiB reserved in total by PyTorch)"
)


def trends_of(*lines: str) -> tuple[Trend, ...]:
    return gather(keep_parts(["\n".join(lines).encode()])).trends


@pytest.mark.parametrize(
    ("line", "where", "size"),
    [
        ("Epoch [1][50/7330] lr: 2e-2, memory: 23107, loss: 0.9", "device", 23107 * MIB),
        ("iter: 19  total_loss: 1.2  lr: 0.01  max_mem: 5102M", "device", 5102 * MIB),
        ("Epoch: [0]  [ 10/90]  loss: 1.0  max mem: 14210", "device", 14210 * MIB),
        ("step 20 loss 0.4 alloc_after_step 4.5 GiB", "device", 9 * GIB // 2),
        ("it 40 | loss 0.3 | gpu 8.75G", "device", 35 * GIB // 4),
        ("[10] loss=0.4 cuda:0 3.25GiB", "device", 13 * GIB // 4),
        ("Epoch 0: 4%|#| 4/90 [00:01<00:30, loss=0.4, vram=9.5GB]", "device", 19 * GIB // 2),
        ("Epoch 0: 4%|#| 4/90 [00:01<00:30, v_num=3, GPU_MB=6144]", "device", 6 * GIB),
        ("torch.cuda.memory_allocated() = 2147483648", "device", 2 * GIB),
        ('{"step": 50, "cuda_memory_mb": 3072, "lr": 0.1}', "device", 3 * GIB),
        ("     3/100      11.2G      1.100      0.900      1.200         31        640", "device", int(11.2 * GIB)),
        ("| 45C P2 120W / 250W |  5120MiB / 11264MiB |  97% Default |", "device", 5 * GIB),
        ("epoch 1 step 100 RSS: 4096 MB", "host", 4 * GIB),
        ("[60s] it=300 VmRSS: 4194304 kB", "host", 4 * GIB),
        ("process memory = 3.5 GiB (of 32.0 GiB)", "host", 7 * GIB // 2),
        ("step 3 mem 5.5G", "", 11 * GIB // 2),
        ("see_memory_usage] MA 4.5 GB  Max_MA 6.1 GB  CA 7.0 GB  Max_CA 7 GB", "device", 9 * GIB // 2),
        ("see_memory_usage] CPU Virtual Memory:  used = 50.5 GB, percent = 40.2%", "host", 101 * GIB // 2),
        ("svmem(total=67406241792, percent=53.1, used=4294967296, free=91)", "host", 4 * GIB),
        ("step 3 loss 0.4 memory_allocated: 4.294967296e+09", "device", 4 * GIB),
        ("step 3 - loss: 0.4 - GPU memory: current 3.50 GB, peak 4.75 GB", "device", 7 * GIB // 2),
        ("step 3 loss 0.4 bytes_in_use=2147483648", "device", 2 * GIB),
        ("a1b2c3  trainer  99.1%  3.50GiB / 32GiB  10.9%  1.2GB / 3MB  0B / 0B  61", "host", 7 * GIB // 2),
        ("Mem:          31Gi       3.5Gi        20Gi       1.0Gi       7.4Gi        26Gi", "host", 7 * GIB // 2),
        ("Mem:         32011        4096       24000        100        4000        27000", "host", 4 * GIB),
        ("it 4 virtual_memory().percent=43.5", "host", 43500),
        ("it 4 gb_free=3.5", "", 7 * GIB // 2),
        ("GPU Total Peak Memory consumed during the epoch (max): 9120", "device", 9120 * MIB),
        ("Schritt 40 Verlust 0,4 GPU-Speicher 3,5 GB", "device", 7 * GIB // 2),
        ("step 40 loss 0.4 mem 9,120 MB", "", 9120 * MIB),
        ("第2轮 损失 0.4 显存占用: 4096MB", "device", 4 * GIB),
        ("step 40 loss 0.4 内存：3.5 GB", "host", 7 * GIB // 2),
        ('{"step": 50, "vram": {"used_gb": 3.5, "total_gb": 24.0}}', "device", 7 * GIB // 2),
        ("[nvml] used=9754686224 free=4294967296 total=25436943810", "device", 4 * GIB),
        ("step 40 loss 0.4 cuda used 4.294967296e+09", "device", 4 * GIB),
        ("[0] NVIDIA TITAN V | 71'C,  98 % |  4096 / 12288 MB | rosa(4090M)", "device", 4 * GIB),
        ("epoch 4 driver_allocated 3.5 GB loss 0.4", "device", 7 * GIB // 2),
        ("it 40 L 0.4 GPUmem 3.5G", "device", 7 * GIB // 2),
        ("it 40 | L 0.4 | 3.5 GiB alloc | 11.2 im/s", "device", 7 * GIB // 2),
        ("it 40 | loss 0.4 | 3.5GB vram | 11.2 im/s", "device", 7 * GIB // 2),
        ("epoch 4 batch 9 | system used 3.5/125.6G", "host", 7 * GIB // 2),
    ],
)
def test_one_line(line: str, where: str, size: int) -> None:
    found = trends_of(*[line] * 6)
    assert [(trend.where, trend.points[-1].size) for trend in found] == [(where, size)]


@pytest.mark.parametrize(
    "line",
    [
        "GPU 0: Tesla T4 (UUID: GPU-1)",
        "using cuda 11.8, cudnn 8.6",
        "model has 44M params",
        "gpu_util 97% temp 61C",
        "epoch 3/40 loss 0.4",
        "memory_format torch.channels_last 1",
        "program 12 framed 4G",
        "GPU memory fraction: 0.9",
        "GPU Memory consumed at the end of the epoch (end-begin): 1104",
    ],
)
def test_what_is_not_memory_in_use(line: str) -> None:
    assert trends_of(*[line] * 6) == ()


@pytest.mark.parametrize("line", ["free memory 3.5 GiB", "Free GPU ram: 3584.0", "RAM available 3.5G", "free 3584 MB"])
def test_what_is_left_is_a_column_that_falls(line: str) -> None:
    (trend,) = trends_of(*[line] * 6)
    assert trend.left
    assert trend.points[-1].size == 7 * GIB // 2


@pytest.mark.parametrize(("last", "cause"), [(100, "leak"), (9000, "variable_shape")])
def test_memory_that_is_used_up_steadily_is_a_leak(last: int, cause: str) -> None:
    free = [
        f"step {100 * step} loss 0.4 free GPU memory {12000 - (12000 - last) * step // 29} MB" for step in range(30)
    ]
    found = oomproof.explain([*free, OOM.replace("20.00 MiB (", "400.00 MiB (")])
    assert found.cause == cause
    assert "«free GPU memory» falls from 11.72 GiB" in found.why
    assert ("too little" in found.why) == (cause == "variable_shape")


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("  epoch   iter   loss   rss(MB)", "      0  {n}   0.91      {size}"),
        ("  epoch   iter   loss   rss (MB)", "      0  {n}   0.91      {size}"),
        ("epoch,iter,loss,rss_mb", "0,{n},0.91,{size}"),
        ("| epoch | iter | rss (MB) |", "| 0 | {n} | {size} |"),
        ("epoch\titer\trss_mb", "0\t{n}\t{size}"),
        ("step,Stats.on_train_batch_end/process_rss_mb,train_loss", "{n},{size},0.7"),
    ],
    ids=["blanks", "unit apart", "commas", "bars", "tabs", "a path"],
)
def test_columns_under_a_header(header: str, row: str) -> None:
    (trend,) = trends_of(header, *(row.format(n=n * 100, size=4096 + n) for n in range(8)))
    assert (trend.where, trend.points[0].size, trend.points[-1].size) == ("host", 4 * GIB, 4103 * MIB)
    found = oomproof.explain(
        "\n".join([header, *(row.format(n=n * 100, size=4096 + 200 * n) for n in range(12)), "Killed"])
    )
    assert (found.cause, found.facts["step"]) == ("leak", 1100)


def test_percentages_are_shown_as_such() -> None:
    found = oomproof.explain([*(f"step {n * 10} RAM {40 + 2 * n}.0%" for n in range(25)), "Killed"])
    assert found.cause == "leak"
    assert "40.0 %" in found.verdict and "88.0 %" in found.verdict


def test_ranks_have_series_of_their_own() -> None:
    lines = [f"[rank{rank}]: step {n * 10} alloc {4 + 3 * rank} GiB" for n in range(8) for rank in (0, 1)]
    assert sorted({point.size for point in trend.points} == {trend.points[0].size} for trend in trends_of(*lines)) == [
        True,
        True,
    ]


def test_reserved_may_grow_while_what_is_in_use_does_not() -> None:
    lines = [f"step {n * 50} allocated 5.0{n % 3} GiB reserved {6 + n * 0.1:.2f} GiB" for n in range(30)]
    assert oomproof.explain([*lines, OOM]).cause != "leak"


def test_a_column_that_starts_anew_is_judged_from_there() -> None:
    """Two runs in one log: what the first one reached is not where the second began."""
    first = [f"step {n * 50} gpu_mem 9.{n % 3}0GB" for n in range(20)]
    second = [f"step {n * 50} gpu_mem {3 + n * 0.2:.2f}GB" for n in range(30)]
    found = oomproof.explain([*first, *second, OOM])
    assert found.cause == "leak" and "from 3.00 GiB" in found.verdict


def test_nothing_grows_is_never_said_over_a_column_that_rose() -> None:
    sizes = (5102, 5102, 6010, 6010, 6010, 6010, 6633, 6633, 7021, 7021, 7021, 7021, 7021, 7021)
    found = oomproof.explain([*(f"iter: {n * 20}  max_mem: {size}M" for n, size in enumerate(sizes)), OOM])
    assert "nothing grows" not in found.why
    assert "«max_mem» went up in jumps" in found.why


def test_a_sentence_between_the_word_and_its_figure() -> None:
    def log(grows: int) -> list[str]:
        ends = (f"Memory usage at the end of the epoch: {12_700_000_000 + grows * n + n % 3}" for n in range(12))
        return [*(line for n, end in enumerate(ends) for line in (f"**Epoch {n}**", end)), "Killed"]

    found = oomproof.explain(log(1_000_000_000))
    assert found.cause == "leak"
    assert "from 11.83 GiB" in found.why
    assert oomproof.explain(log(0)).cause == "host_too_small"
