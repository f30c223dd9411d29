"""What a guarded step could change without a word: each case is the same training, is told, or stops with its state
intact."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from failing_allocations import WORDS, FailingAllocations
from torch import nn, optim
from torch.nn.functional import cross_entropy, mse_loss

from oomproof.changes.torch.losses import total
from oomproof.errors import CannotDo, InputError, JobError, OutOfMemory
from oomproof.run.guard.guard import Guard

pytestmark = pytest.mark.usefixtures("double_precision", "quick_collector")
IMAGES, CLASSES = 4, 3


def net(*more: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), *more, nn.Tanh(), nn.Linear(8, CLASSES))


def batch(images: int = IMAGES) -> tuple[torch.Tensor, torch.Tensor]:
    noise = torch.Generator().manual_seed(1)
    return torch.rand(images, 6, generator=noise), torch.randint(0, CLASSES, (images,), generator=noise)


def mean_loss(model: nn.Module, given: Any) -> torch.Tensor:
    return cross_entropy(model(given[0]), given[1])


def sgd(model: nn.Module) -> optim.Optimizer:
    return optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


class Failing:
    """A loss that runs out of memory where it is told to: the n-th call of ``here``."""

    def __init__(self, *calls: int) -> None:
        self.calls, self.count = calls, 0

    def here(self) -> None:
        self.count += 1
        if self.count in self.calls:
            raise torch.cuda.OutOfMemoryError(WORDS)


def trained(model: nn.Module, loss: Callable[..., Any], given: Any, steps: int = 1) -> nn.Module:
    """As anybody writes it."""
    optimizer = sgd(model)
    for _ in range(steps):
        optimizer.zero_grad()
        total(loss(model, given)).backward()
        optimizer.step()
    return model


def assert_same(first: nn.Module, second: nn.Module) -> None:
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=1e-9, atol=1e-12)


# -- batches -----------------------------------------------------------------------------------------------------------


def test_a_batch_that_can_be_read_only_once_is_refused() -> None:
    model = net()
    guard = Guard(model, sgd(model))
    for once in ((each for each in [batch()]), iter([batch()]), (batch()[0], iter([1])), {"images": map(abs, [1])}):
        with pytest.raises(InputError, match="can be read only once"):
            guard.step(once, mean_loss)
        with pytest.raises(InputError, match="can be read only once"):
            guard.evaluate(once, mean_loss)


def test_a_batch_that_is_written_to_cannot_be_begun_again() -> None:
    """Images that a loss normalises in place would be normalised twice."""

    def in_place(model: nn.Module, given: Any) -> torch.Tensor:
        given[0].sub_(0.5)
        failing.here()
        return mean_loss(model, given)

    for calls in ((1,), (2,)):
        model, failing = net(), Failing(*calls)
        before = copy.deepcopy(model)
        guard = Guard(model, sgd(model), {"batch": 2} if calls == (2,) else None, weight=lambda part: len(part[0]))
        with pytest.raises(OutOfMemory, match=r"writes to its batch in place.*as before this step"):
            guard.step(batch(), in_place)
        assert_same(model, before)
    failing = Failing()
    expected = trained(net(), in_place, batch())
    model = net()
    Guard(model, sgd(model), {"batch": 2}).step(batch(), in_place)  # looks at a few images before it splits
    assert_same(model, expected)


def test_validation_that_writes_to_its_batch_is_not_begun_again() -> None:
    failing = Failing(1)

    def run(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
        images.sub_(0.5)
        failing.here()
        return model(images)

    model = net()
    with pytest.raises(OutOfMemory, match="writes to its batch in place"):
        Guard(model, sgd(model)).evaluate(batch()[0], run)


@pytest.mark.parametrize("form", ["a table beside the images", "numbers alone"])
def test_a_batch_that_cannot_be_split_climbs(form: str, caplog: pytest.LogCaptureFixture) -> None:
    """One tensor has no row for each image: nothing is split, and what is left is tried."""
    images, labels = batch()
    given: Any = {"images": images, "labels": labels, "weights": torch.ones(CLASSES)}
    if form == "numbers alone":
        given = {"seed": 3, "scale": 0.5}
    failing = Failing(1)

    def loss(model: nn.Module, given: Any) -> torch.Tensor:
        failing.here()
        if "seed" in given:
            return model(images * given["scale"]).square().mean()
        return cross_entropy(model(given["images"]), given["labels"], given["weights"])

    model = net()
    before = copy.deepcopy(model)
    guard = Guard(model, sgd(model), allow=["precision"])
    guard.step(given, loss)
    assert "bf16" in caplog.text and "micro-batches" not in caplog.text
    failing.calls = tuple(range(100))
    model = copy.deepcopy(before)
    with pytest.raises(OutOfMemory, match="as before this step"):
        Guard(model, sgd(model)).step(given, loss)
    assert_same(model, before)


# -- losses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", [nn.Identity, nn.BatchNorm1d])
@pytest.mark.parametrize("images", [2, 8])
def test_a_sum_is_noticed(norm: type[nn.Module], images: int, caplog: pytest.LogCaptureFixture) -> None:
    """Also where micro-batches have one image each, and with normalisation that is trained."""

    def sum_loss(model: nn.Module, given: Any) -> torch.Tensor:
        return cross_entropy(model(given[0]), given[1], reduction="sum")

    layer = norm(8).eval() if norm is nn.BatchNorm1d else norm()
    expected = trained(net(copy.deepcopy(layer)), sum_loss, batch(images))
    model = net(layer)
    guard = Guard(model, sgd(model), {"batch": images // 2})
    guard.step(batch(images), sum_loss)
    assert_same(model, expected)
    if norm is nn.BatchNorm1d and images == 8:  # trained: other results, and yet no gradients of half the size
        layer.train()
        other = net(copy.deepcopy(layer))
        trained(other, sum_loss, batch(images))
        model = net(layer)
        before = model[0].weight.detach().clone()
        Guard(model, sgd(model), {"batch": images // 2}).step(batch(images), sum_loss)
        sizes = [(each[0].weight.detach() - before).norm().item() for each in (model, other)]
        assert sizes[0] == pytest.approx(sizes[1], rel=0.3)


def test_a_divisor_that_shows_later_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Tokens that count: as many in each image of the first batch, other numbers in later ones."""

    def tokens(model: nn.Module, given: Any) -> torch.Tensor:
        images, counts = given
        each = model(images).square().sum(1)
        return (each * counts).sum() / counts.sum()

    images = batch(8)[0]
    even, uneven = (images, torch.ones(8)), (images, torch.arange(1.0, 9.0))
    model = net()
    guard = Guard(model, sgd(model), {"batch": 4})
    guard.step(even, tokens)
    assert not [each for each in caplog.messages if "neither the mean nor the sum" in each]
    for _ in range(4):
        guard.step(uneven, tokens)
    assert len([each for each in caplog.messages if "neither the mean nor the sum" in each]) == 1


@pytest.mark.parametrize("ignored", [1, 4, 7])
def test_labels_that_a_loss_ignores_are_told_wherever_they_are(ignored: int, caplog: pytest.LogCaptureFixture) -> None:
    """Pixels, of which one image has only one that counts: it is not among the first of the batch."""
    images, labels = batch(8)[0], torch.randint(0, CLASSES, (8, 1), generator=torch.Generator().manual_seed(2))
    labels = labels.repeat(1, 5)
    labels[ignored, 1:] = -100

    def pixels(model: nn.Module, given: Any) -> torch.Tensor:
        return cross_entropy(model(given[0]).unsqueeze(2).expand(-1, -1, 5), given[1], ignore_index=-100)

    model = net()
    guard = Guard(model, sgd(model), {"batch": 4})
    for _ in range(4):
        guard.step((images, labels), pixels)
    assert len([each for each in caplog.messages if "neither the mean nor the sum" in each]) == 1


def test_a_look_at_the_losses_that_does_not_fit_is_told(caplog: pytest.LogCaptureFixture) -> None:
    failing = Failing(1, 2)

    def loss(model: nn.Module, given: Any) -> torch.Tensor:
        if len(given[0]) > 1:
            failing.here()
        return mean_loss(model, given)

    expected = trained(net(), mean_loss, batch(2))
    model = net()
    Guard(model, sgd(model)).step(batch(2), loss)
    assert_same(model, expected)
    assert [each for each in caplog.messages if "could not be looked at" in each]


@pytest.mark.parametrize("outputs", ["with logits", "with their sum"])
def test_outputs_that_are_no_losses_are_not_added_up(outputs: str) -> None:
    def loss(model: nn.Module, given: Any) -> dict[str, torch.Tensor]:
        logits = model(given[0])
        own = cross_entropy(logits, given[1])
        return {"loss": own, "logits": logits} if outputs == "with logits" else {"loss": own, "loss_cls": own}

    model = net()
    with pytest.raises(JobError, match=r"return .*\['loss'\]"):
        Guard(model, sgd(model)).step(batch(), loss)


# -- gradients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hook", "after"])
def test_hooks_that_see_micro_batches_are_told(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    model = net()
    if kind == "hook":
        model[0].weight.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    else:

        def clip(parameter: torch.Tensor) -> None:
            parameter.grad.clamp_(-1e-3, 1e-3)

        model[0].weight.register_post_accumulate_grad_hook(clip)
    guard = Guard(model, sgd(model))
    guard.step(batch(), mean_loss)
    assert not caplog.messages
    guard.sizes.largest = 2
    for _ in range(2):
        guard.step(batch(), mean_loss)
    assert [each for each in caplog.messages if "0.weight" in each and "hook" in each] == caplog.messages
    assert len(caplog.messages) == 1


def test_an_update_within_backward_is_not_done_twice() -> None:
    """The usual way to save memory for gradients: what a failed pass has updated cannot be taken back."""
    model, failing = net(), Failing(1)
    small = {p: optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(parameter: torch.Tensor) -> None:
        small[parameter].step()
        small[parameter].zero_grad()
        if parameter is model[2].weight:
            failing.here()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    guard = Guard(model, optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1))
    with pytest.raises(OutOfMemory, match="some parameters were updated"):
        guard.step(batch(), mean_loss)


def test_rows_of_an_embedding_that_are_renormed_may_be_begun_again() -> None:
    """``max_norm`` writes to weights in forward; to do it twice is to do it once."""

    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.table, self.head = nn.Embedding(10, 6, max_norm=0.5), nn.Linear(6, CLASSES)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(given))

    given = (torch.tensor([1, 3, 5, 3]), batch()[1])
    expected = trained(Words(), mean_loss, given)
    failing = Failing(1)

    def loss(model: nn.Module, given: Any) -> torch.Tensor:
        found = mean_loss(model, given)
        failing.here()
        return found

    model = Words()
    Guard(model, sgd(model)).step(given, loss)
    assert_same(model, expected)


def test_gradients_of_other_parameters_are_counted_once() -> None:
    """Of a part that another optimizer updates, and of a loss with weights of its own."""

    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, model: nn.Module, given: Any) -> torch.Tensor:
            return self.scale * mean_loss(model, given)

    def gradients(guarded: bool) -> list[Any]:
        model, own = net(), Loss()
        mine = optim.SGD([*model[0].parameters(), own.scale], lr=0.1)
        failing = Failing(2, 5) if guarded else Failing()

        model[0].weight.register_hook(lambda _: failing.here())  # those of the last layer and of the loss are made
        if guarded:
            guard = Guard(model, mine)
            for _ in range(2):
                guard.step(batch(), own)
            mine.zero_grad()
            for _ in range(2):
                guard.backward(batch(), own)
        else:
            for place in range(4):
                if place < 3:
                    mine.zero_grad()
                own(model, batch()).backward()
                if place < 2:
                    mine.step()
        return [p.grad for p in (*model.parameters(), own.scale)]

    for plain, guarded in zip(gradients(False), gradients(True), strict=True):
        torch.testing.assert_close(guarded, plain, rtol=1e-9, atol=1e-12)


def test_a_change_of_gradients_that_fails_in_its_middle_is_not_done_twice() -> None:
    model, failing = net(), Failing(2)
    before = copy.deepcopy(model)
    guard = Guard(model, sgd(model))

    def noise() -> None:
        for parameter in model.parameters():
            failing.here()
            parameter.grad.add_(torch.randn_like(parameter))

    with pytest.raises(OutOfMemory, match="as before this step"):
        guard.step(batch(), mean_loss, noise)
    assert_same(model, before)


def test_random_numbers_of_a_change_of_gradients_are_drawn_once() -> None:
    def train(*calls: int) -> nn.Module:
        model, failing = net(), Failing(*calls)
        guard = Guard(model, sgd(model))

        def noise() -> None:
            drawn = [torch.randn_like(parameter) for parameter in model.parameters()]
            failing.here()
            for parameter, each in zip(model.parameters(), drawn, strict=True):
                parameter.grad.add_(each)

        torch.manual_seed(4)
        guard.step(batch(), mean_loss, noise)
        return model

    assert_same(train(1), train())


def test_a_hook_after_the_update_does_not_repeat_it() -> None:
    model, failing = net(), Failing(1)
    optimizer = sgd(model)
    expected = trained(net(), mean_loss, batch())
    optimizer.register_step_post_hook(lambda *_: failing.here())
    with pytest.raises(OutOfMemory):
        Guard(model, optimizer).step(batch(), mean_loss)
    assert_same(model, expected)


def test_gradients_that_the_user_drops_stay_dropped() -> None:
    model = net()
    before = copy.deepcopy(model)

    def drop() -> None:
        model[0].weight.grad = None

    Guard(model, sgd(model)).step(batch(), mean_loss, drop)
    assert torch.equal(model[0].weight, before[0].weight) and not torch.equal(model[0].bias, before[0].bias)


def test_weights_that_are_shared_are_updated_once() -> None:
    def tied() -> nn.Module:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
        model[2].weight = model[0].weight
        return model

    def loss(model: nn.Module, given: Any) -> torch.Tensor:
        return mse_loss(model(given[0]), given[0])

    expected = trained(tied(), loss, batch(), steps=2)
    for place in range(0, 40, 5):
        model = tied()
        guard, given = Guard(model, sgd(model)), batch()
        with FailingAllocations({place}):
            for _ in range(2):
                guard.step(given, loss)
        assert_same(model, expected)


def test_an_optimizer_that_calls_the_loss_itself_is_refused() -> None:
    model = net()
    with pytest.raises(CannotDo, match="LBFGS"):
        Guard(model, optim.LBFGS(model.parameters()))


# -- state -------------------------------------------------------------------------------------------------------------


class Counting(nn.Module):
    """Writes to a buffer in every forward pass, and makes another in the first."""

    seen: torch.Tensor
    first: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(6, CLASSES)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        if not hasattr(self, "first"):
            self.register_buffer("first", torch.zeros(()))
        self.first += images.detach().mean()
        return self.head(images)


def test_buffers_that_a_failed_pass_has_made_are_made_anew() -> None:
    failing = Failing(1)

    def loss(model: nn.Module, given: Any) -> torch.Tensor:
        found = mean_loss(model, given)
        failing.here()
        return found

    expected = trained(Counting(), mean_loss, batch(), steps=2)
    model = Counting()
    guard = Guard(model, sgd(model), weight=lambda part: len(part[0]))
    guard.sizes.floor = IMAGES
    with pytest.raises(OutOfMemory):
        guard.step(batch(), loss)
    failing.calls = (3,)
    guard.step(batch(), loss)
    with pytest.raises(OutOfMemory):
        guard.step(batch(), loss)
    guard.step(batch(), loss)
    assert_same(model, expected)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (Counting, "seen"),
        (lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), nn.InstanceNorm1d(1, track_running_stats=True), nn.Flatten(),
                               nn.Linear(6, CLASSES)), "1.running_mean"),
        (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, CLASSES)), "parametrizations.weight.0._u"),
    ],
    ids=["counter", "instance norm", "spectral norm"],
)  # fmt: skip
def test_buffers_that_every_micro_batch_writes_to_are_told(
    make: Callable[[], nn.Module], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = make()
    guard = Guard(model, sgd(model))
    guard.step(batch(), mean_loss)
    assert not caplog.messages
    guard.sizes.largest = 2
    for _ in range(2):
        guard.step(batch(), mean_loss)
    assert len([each for each in caplog.messages if name in each and "every micro-batch" in each]) == 1


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("kind", ["trained", "without statistics"])
def test_normalisation_over_the_batch_is_told(
    kind: str, momentum: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A cumulative mean (momentum None) too, and layers that have no statistics and so use the batch's in eval mode."""
    layer = nn.BatchNorm1d(8, momentum=momentum, track_running_stats=kind == "trained")
    if kind != "trained":
        layer.eval()
    model, failing = net(layer), Failing(1)

    def loss(model: nn.Module, given: Any) -> torch.Tensor:
        failing.here()
        return mean_loss(model, given)

    Guard(model, sgd(model)).step(batch(), loss)
    assert "batch normalisation sees micro-batches, so results differ" in caplog.text
    assert "the update is the same" not in caplog.text


@pytest.mark.parametrize("kind", ["torch", "numpy", "python"])
def test_generators_of_the_model_are_where_they_were(kind: str) -> None:
    """Random numbers of a module's own, beside those that all share."""

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.head = nn.Linear(6, CLASSES)
            self.own: Any = {
                "torch": torch.Generator().manual_seed(3),
                "numpy": np.random.default_rng(3),
                "python": random.Random(3),
            }[kind]

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            drawn = torch.rand((), generator=self.own) if kind == "torch" else self.own.random()
            return self.head(images * drawn)

    failing = Failing(1)

    def loss(model: nn.Module, given: Any) -> torch.Tensor:
        found = mean_loss(model, given)
        failing.here()
        return found

    expected = trained(Noisy(), mean_loss, batch())
    model = Noisy()
    guard = Guard(model, sgd(model), floor=IMAGES)
    with pytest.raises(OutOfMemory):
        guard.step(batch(), loss)
    guard.step(batch(), loss)
    assert_same(model, expected)
