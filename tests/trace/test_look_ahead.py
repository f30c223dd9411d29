"""The largest of a loader's first batches is the one that a step is traced with."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from oomproof.memory.timeline import Timeline
from oomproof.sources.script.command import read_command
from oomproof.sources.script.running import ScriptRun, run_script
from oomproof.trace.request import be_silent
from oomproof.trace.torch.session.look_ahead import ALIKE, BATCHES, LookAhead, describe_batches
from thorough import thorough_but

SCRIPT = """
    import torch
    from torch.utils.data import DataLoader

    WIDTHS = [40, 60, 30, 90, 50, 20, 70]

    def collate(widths):
        return torch.rand(4, 3, 32, widths[0])

    if __name__ == "__main__":
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3)).cuda()
        optimizer = torch.optim.Adam(net.parameters())
        loader = DataLoader(WIDTHS * 20, batch_size=1, num_workers=WORKERS, collate_fn=collate)
        for number, images in enumerate(loader):
            loss = net(images.cuda()).mean()
            loss.backward()
            if number % ACCUMULATE == ACCUMULATE - 1:
                optimizer.step()
                optimizer.zero_grad()
            print(f"{loss:.4f}")
"""


def follow(folder: Path, *, batches: int, workers: int = 0, accumulate: int = 1) -> Timeline:
    text = textwrap.dedent(SCRIPT).replace("WORKERS", str(workers)).replace("ACCUMULATE", str(accumulate))
    (folder / "train.py").write_text(text)
    return run_script(ScriptRun(read_command(f"python {folder}/train.py"), batches=batches), be_silent)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "accumulate"), thorough_but([(2, 1)], [(0, 1), (2, 1), (0, 3)]))
def test_the_largest_batch_is_traced(workers: int, accumulate: int, tmp_path: Path) -> None:
    step = follow(tmp_path, batches=0, workers=workers, accumulate=accumulate)
    assert step.about.batches_seen.startswith(
        "the largest of 64 batches looked at, 4x3x32x90 (the smallest: 4x3x32x20)"
    )
    made = step.bytes[step.born > step.mark_tick[len(step.mark_tick) // 2]]
    assert 4 * 8 * 30 * 88 * 4 in made.tolist()  # in the second step, beside the optimizer's state


@pytest.mark.slow
def test_batches_as_they_come(tmp_path: Path) -> None:
    step = follow(tmp_path, batches=1)
    assert step.about.batches_seen == "the first batch, 4x3x32x40; a later one may be larger"
    assert 4 * 8 * 30 * 58 * 4 in step.bytes.tolist() and 4 * 8 * 30 * 88 * 4 not in step.bytes.tolist()


def test_batches_are_neither_lost_nor_made_up() -> None:
    sizes = [3, 1, 5, 2, 4]
    left = iter([torch.zeros(size) for size in sizes])
    ahead = LookAhead()
    given = [len(ahead.hand_over(left.__next__, updates)) for updates in range(len(sizes))]
    assert given[:2] == [4, 5] and sorted(given) == sorted(sizes)
    with pytest.raises(StopIteration):
        ahead.hand_over(left.__next__, 9)


def test_a_step_of_many_batches_has_the_largest_again() -> None:
    left = iter([torch.zeros(size) for size in (3, 1, 5, 2, 4)])
    ahead = LookAhead()
    assert [len(ahead.hand_over(left.__next__, updates)) for updates in (0, 0, 0, 1)] == [4, 5, 3, 5]


def test_batches_of_one_shape_are_not_all_loaded() -> None:
    loaded = []

    def load() -> torch.Tensor:
        loaded.append(1)
        return torch.zeros(2, 3)

    ahead = LookAhead()
    ahead.hand_over(load, 0)
    assert len(loaded) == ALIKE < BATCHES and describe_batches(ahead.held) == "batches of 2x3"
    asked = LookAhead(batches=9)
    asked.hand_over(load, 0)
    assert len(loaded) == ALIKE + 9


def test_an_empty_loader_ends_at_once() -> None:
    with pytest.raises(StopIteration):
        LookAhead().hand_over(iter(()).__next__, 0)
