"""A guard outside the update: gradients that add up over batches, validation, and data loading."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from failing_allocations import FailingAllocations
from torch import nn, optim
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, IterableDataset

from oomproof.errors import OutOfMemory
from oomproof.run.guard.guard import Guard

WIDTH = 12


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3))


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def batches(count: int = 3, images: int = 8) -> list[Any]:
    noise = torch.Generator().manual_seed(5)
    return [
        (torch.rand(images, 6, generator=noise), torch.randint(0, 3, (images,), generator=noise)) for _ in range(count)
    ]


@pytest.mark.thorough
@pytest.mark.usefixtures("double_precision")
def test_gradients_of_several_batches_add_up_though_one_fails_anywhere() -> None:
    reference = net()
    for batch in batches():
        loss(reference, batch).backward()
    expected = [p.grad for p in reference.parameters()]
    probe = Guard(model := net(), optim.SGD(model.parameters(), lr=0.1))
    given = batches()
    with FailingAllocations() as mode:
        for batch in given:
            probe.backward(batch, loss)
    for place in range(mode.count):
        model = net()
        guard = Guard(model, optim.SGD(model.parameters(), lr=0.1))
        given = batches()
        with FailingAllocations({place}) as failing:
            for batch in given:
                guard.backward(batch, loss)
        assert failing.failed == 1
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.thorough
def test_earlier_gradients_are_there_after_a_batch_that_never_fits() -> None:
    model = net()
    guard = Guard(model, optim.SGD(model.parameters(), lr=0.1))
    first, second, _ = batches()
    guard.backward(first, loss)
    before = [p.grad.clone() for p in model.parameters()]
    with FailingAllocations(too_large=1), pytest.raises(OutOfMemory):
        guard.backward(second, loss)
    assert all(torch.equal(a, p.grad) for a, p in zip(before, model.parameters(), strict=True))


@pytest.mark.thorough
def test_validation_is_done_in_parts_that_fit(caplog: pytest.LogCaptureFixture) -> None:
    model = net().eval()
    guard = Guard(model, optim.SGD(model.parameters(), lr=0.1))
    images = torch.rand(11, 6)
    expected = model(images).detach()
    seen: list[int] = []

    def predict(model: nn.Module, part: torch.Tensor) -> torch.Tensor:
        found = model(part)
        seen.append(len(part))
        return found

    with FailingAllocations(too_large=4 * WIDTH), caplog.at_level(logging.WARNING, "oomproof.guard"):
        found = guard.evaluate(images, predict)
    assert sum(seen) == 11 and max(seen) <= 3  # no image was done twice
    torch.testing.assert_close(torch.cat(found), expected)
    assert not found[0].requires_grad
    assert "out of memory in validation" in caplog.messages[0] and "no result changes" in caplog.messages[0]
    assert guard.sizes.largest is None  # training keeps its own size
    with (
        FailingAllocations(too_large=1),
        pytest.raises(OutOfMemory, match=r"validation with one image.*smaller images"),
    ):
        guard.evaluate(images, predict)


class Numbers(Dataset[int]):
    """Images by number; the process that reads ``bad`` fails, as often as the file says."""

    def __init__(self, folder: Path, bad: int, how: str) -> None:
        self.left, self.bad, self.how = folder / "left", bad, how

    def __len__(self) -> int:
        return 24

    def __getitem__(self, place: int) -> int:
        if place == self.bad and (left := int(self.left.read_text())):
            self.left.write_text(str(left - 1))
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise MemoryError("Unable to allocate 3.00 GiB for an array")
        return place


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["kill", "raise"])
def test_the_rest_of_an_epoch_comes_from_fewer_workers(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "left").write_text("0")
    model = net()
    guard = Guard(model, optim.SGD(model.parameters(), lr=0.1))

    def loader() -> DataLoader[int]:
        return DataLoader(Numbers(tmp_path, 7, how), batch_size=4, shuffle=True, num_workers=2)

    torch.manual_seed(3)
    plain = [batch.tolist() for batch in loader()]
    after = torch.rand(1)
    torch.manual_seed(3)
    (tmp_path / "left").write_text("1")
    with caplog.at_level(logging.WARNING, "oomproof.guard"):
        found = [batch.tolist() for batch in guard.load(loader())]
    assert found == plain
    assert torch.equal(torch.rand(1), after)  # nor does the training draw other numbers
    assert len(caplog.messages) == 1 and "comes from 1 worker" in caplog.messages[0]


@pytest.mark.thorough
def test_loading_that_never_fits_ends_with_words(tmp_path: Path) -> None:
    (tmp_path / "left").write_text("99")
    model = net()
    guard = Guard(model, optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(OutOfMemory, match=r"in data loading without workers.*3.00 GiB.*prefetch_factor"):
        list(guard.load(DataLoader(Numbers(tmp_path, 7, "raise"), batch_size=4, num_workers=1)))

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            yield 1
            raise MemoryError("Unable to allocate 3.00 GiB")

    with pytest.raises(OutOfMemory, match="data loading"):
        list(guard.load(DataLoader(Stream())))


def test_other_errors_of_a_loader_stay_what_they_are() -> None:
    model = net()
    guard = Guard(model, optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(TypeError):
        list(guard.load(DataLoader([1, "a"], batch_size=2, num_workers=0)))
    assert list(guard.load([1, 2])) == [1, 2]
