"""What people do today when a training does not fit, each as its own documentation has it.

Halving the batch by hand; accelerate's find_executable_batch_size; Lightning's BatchSizeFinder; and torch.compile with
a budget for activations. Those that look for a batch size train for real until one runs.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

import fit_training
from fit_jobs import CpuJob
from fit_worker import data_bytes, limited

TRIAL = 2
"""steps until a batch size is taken to run: the optimizer has its state from the first on"""


class NotInstalled(Exception):
    """A rival that is not there is said so, and the benchmark goes on."""


def halving(job: CpuJob, room: int) -> dict[str, Any]:
    """The training is started again with half the batch until it runs."""
    return _trials(job, room, lambda batch: batch // 2)


def accelerate(job: CpuJob, room: int) -> dict[str, Any]:
    try:
        from accelerate.utils import find_executable_batch_size
    except ImportError as error:
        raise NotInstalled("accelerate: pip install accelerate") from error
    trials = 0

    def train(batch: int) -> int:
        nonlocal trials
        trials += 1
        _steps(job, batch, room)
        return batch

    fit_training.warm_up(job, job.plain)
    began = time.process_time()
    found = find_executable_batch_size(train, starting_batch_size=job.batch)()
    return {"batch": found, "seconds": time.process_time() - began, "trials": trials}


def lightning(job: CpuJob, room: int) -> dict[str, Any]:
    try:
        import lightning.pytorch as pl
        from lightning.pytorch.tuner import Tuner
    except ImportError as error:
        raise NotInstalled("Lightning: pip install lightning") from error

    one = {**job.plain, "batch": 1}
    pieces = job.pieces(one)
    image = pieces.batch()
    trials = []

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.batch_size = pieces.model(), 2

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            from oomproof.changes.torch.losses import total

            assert pieces.loss is not None
            return total(pieces.loss(self.model, batch))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return pieces.optimizer([each for each in self.parameters() if each.requires_grad])

        def train_dataloader(self) -> Any:
            trials.append(self.batch_size)
            return torch.utils.data.DataLoader(
                range(64 * job.batch), self.batch_size, collate_fn=lambda some: _joined(image, len(some))
            )

    fit_training.warm_up(job, job.plain)
    _rehearsed(pl, Module())
    gc.collect()
    start = data_bytes()
    with limited(room, start), tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        module = Module()
        trainer = pl.Trainer(**QUIET, default_root_dir=folder)
        found = Tuner(trainer).scale_batch_size(module, mode="power")
        return {"batch": found, "seconds": time.process_time() - began, "trials": len(set(trials))}


QUIET = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


def _rehearsed(pl: Any, module: Any) -> None:
    """Loads what Lightning loads at its first step."""
    pl.Trainer(**QUIET, max_steps=1).fit(module)


FINDERS: dict[str, Callable[[CpuJob, int], dict[str, Any]]] = {
    "halving": halving,
    "accelerate": accelerate,
    "lightning": lightning,
}


def checkpointing(job: CpuJob, room: int) -> dict[str, Any]:
    """All repeated blocks are computed again; the batch is halved where that is not enough."""
    return _trials(job, room, lambda batch: batch // 2, {"checkpoint": "nonreentrant"})


FINDERS["checkpointing"] = checkpointing


def compiled(job: CpuJob, batch: int, share: float, backend: str) -> Any:
    """A training whose model is compiled with ``share`` of its activations kept. Compiling takes memory that has no
    place on a GPU, so two steps run before the limit is reckoned."""
    import torch._functorch.config as functorch

    functorch.activation_memory_budget = share
    training = fit_training.Training(job, job.plain, batch)
    training.build()
    assert training.step is not None
    passes = training.step._passes
    passes.model = torch.compile(passes.model, backend=backend)
    for _ in range(2):
        training.run(None)
    passes.optimizer.zero_grad()
    gc.collect()
    state = [t for each in passes.optimizer.state.values() for t in each.values() if isinstance(t, torch.Tensor)]
    weights = [*passes.model.parameters(), *passes.model.buffers()]
    training.start = data_bytes() - sum(tensor.nbytes for tensor in (*weights, *state))
    return training


def _trials(
    job: CpuJob, room: int, smaller: Callable[[int], int], settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    fit_training.warm_up(job, {**job.plain, **(settings or {})})
    began, batch, trials = time.process_time(), job.batch, 0
    while batch:
        trials += 1
        try:
            _steps(job, batch, room, settings)
            return {"batch": batch, "seconds": time.process_time() - began, "trials": trials}
        except (RuntimeError, MemoryError, ValueError) as error:
            last = f"{type(error).__name__} {str(error)[:120]}"
        gc.collect()
        batch = smaller(batch)
    return {"error": f"no batch runs: {last}", "seconds": time.process_time() - began, "trials": trials}


def _steps(job: CpuJob, batch: int, room: int, settings: dict[str, Any] | None = None) -> None:
    training = fit_training.Training(job, {**job.plain, **(settings or {})}, batch)
    try:
        for _ in range(TRIAL):
            training.run(room)
    finally:
        training.filled.close()


def _joined(one: Any, count: int) -> Any:
    """``count`` times the batch of one image."""
    if isinstance(one, torch.Tensor):
        return one.expand(count, *one.shape[1:]).clone()
    images, labels = one
    if isinstance(images, list):
        return images * count, labels * count
    return _joined(images, count), _joined(labels, count)
