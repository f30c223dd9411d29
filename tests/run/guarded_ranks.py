"""One of several processes that train a guarded model together: run by test_guard_ranks with a rank's environment."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from failing_allocations import WORDS, FailingAllocations
from torch import distributed, nn, optim
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from oomproof.errors import JobError, OutOfMemory
from oomproof.run.guard.guard import Guard


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6).eval(), nn.ReLU(), nn.Flatten(), nn.Linear(216, 5))


def batches(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    noise = torch.Generator().manual_seed(10 + rank)
    return [(torch.rand(4, 3, 8, 8, generator=noise), torch.randint(0, 5, (4,), generator=noise)) for _ in range(3)]


def shard(model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model[4], mesh=mesh)
    return fully_shard(model, mesh=mesh)


def meet(folder: Path, rank: int) -> None:
    """Both have loaded PyTorch, however long that took, before the first of them waits with a time-out."""
    (folder / f"here.{rank}").touch()
    while not (folder / f"here.{1 - rank}").exists():
        time.sleep(0.01)


def leave(how: str) -> None:
    """One process dies, or stands still."""
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "sleep":
        time.sleep(600)


def go_on(guard: Guard, given: list[tuple[torch.Tensor, torch.Tensor]], state: str) -> str:
    """As a script that takes an error for one of its batch alone: it must be told again, and nothing may wait."""
    for batch in given:
        began = time.monotonic()
        try:
            guard.step(batch, lambda model, batch: cross_entropy(model(batch[0]), batch[1]))
        except (OutOfMemory, JobError) as error:
            assert str(error) == state and time.monotonic() - began < 8  # not the time-out again
        else:
            return "a step was done"
    if distributed.get_rank() == 1:
        time.sleep(600)
    return state


def make_room_fail(guard: Guard, method: str) -> None:
    """In the second process there is never room for whole parameters, or none is left once there was."""

    def fail() -> None:
        raise torch.cuda.OutOfMemoryError(WORDS)

    if distributed.get_rank() == 1:
        setattr(guard._ranks, method, fail)


def main() -> None:
    fails_at, too_large, guarded, sharded, end = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    rank = int(os.environ["RANK"])
    meet(Path(sys.argv[2]).parent, rank)
    distributed.init_process_group("gloo", timeout=timedelta(seconds=10 if end in ("sleep", "go on") else 60))
    given = batches(rank)
    model = shard(net()) if sharded else DistributedDataParallel(net())
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    failing = FailingAllocations({fails_at} if rank == 1 and fails_at >= 0 else set(), too_large if rank == 1 else None)
    state = "trained"
    if guarded:
        guard = Guard(model, optimizer)
        if end in ("room", "gather", "go on"):
            make_room_fail(guard, "_find_room" if end == "room" else "_gather")
        with failing:
            try:
                for place, batch in enumerate(given):
                    if rank == 1 and place == 1:
                        leave(end)
                    guard.step(batch, lambda model, batch: cross_entropy(model(batch[0]), batch[1]))
            except (OutOfMemory, JobError) as error:
                state = str(error)
        if end == "go on":
            state = go_on(guard, given, state)
    if end in ("kill", "sleep", "gather", "go on"):
        print(state, flush=True)
        os._exit(3)
    if not guarded:
        for images, labels in given:
            optimizer.zero_grad()
            cross_entropy(model(images), labels).backward()
            optimizer.step()
    values = (model if sharded else model.module).state_dict().values()
    weights = [(v.full_tensor() if hasattr(v, "full_tensor") else v).flatten().tolist() for v in values]
    found = {"rank": rank, "state": state, "weights": weights, "failed": failing.failed}
    with open(f"{sys.argv[2]}.{rank}", "w") as file:  # noqa: PTH123
        json.dump(found, file)
    distributed.destroy_process_group()
    os._exit(0)


main()
