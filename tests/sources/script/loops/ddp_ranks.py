# ruff: noqa
import os

import numpy as np
import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Noise(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        return np.random.default_rng(i).standard_normal((3, 64, 64), dtype=np.float32), i % 10


def main():
    dist.init_process_group("nccl")
    rank, local, world = dist.get_rank(), int(os.environ["LOCAL_RANK"]), dist.get_world_size()
    torch.cuda.set_device(local)
    model = torchvision.models.resnet18(num_classes=10).cuda()
    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model = DDP(model, device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    sampler = DistributedSampler(Noise())
    loader = DataLoader(Noise(), batch_size=16, sampler=sampler)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x.cuda(local)), y.cuda(local))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen = loss.detach().clone()
            dist.all_reduce(seen)
            if rank == 0:
                print(epoch, (seen / world).item())
        dist.barrier()
        if rank == 0:
            torch.save(model.module.state_dict(), "ddp.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
