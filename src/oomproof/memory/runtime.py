"""How a training is run, as far as memory is concerned, apart from what the traced step itself decides.

These settings need no new trace: the same Timeline is replayed under other rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from oomproof.memory.parallel import Parallel


@dataclass(frozen=True)
class Runtime:
    """One field per setting; ``oomproof check JOB --set FIELD=VALUE`` changes it (HELP says what it means)."""

    expandable_segments: bool = False
    max_split_size_mb: int = 0
    cudnn_benchmark: bool = False
    ddp: bool = False
    gradient_as_bucket_view: bool = False
    processes: int = 1
    workers: int = 0
    prefetch_factor: int = 2
    persistent_workers: bool = False
    worker_start: str = "fork"
    malloc_trim: bool = False
    pin_memory: bool = False
    annotations: str = "list"
    ram_cache: bool = False
    mixing: int = 1
    arrays_mb: int = 0
    memory_growth: bool = False
    memory_limit_mb: int = 0

    @property
    def parallel(self) -> Parallel:
        """How PyTorch shares the training. Traces of other frameworks' steps have their exchange in them."""
        if not self.ddp:
            return Parallel()
        return Parallel(2, "bucket views" if self.gradient_as_bucket_view else "buckets")


HELP = {
    "expandable_segments": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "max_split_size_mb": "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:N, in MiB; 0: no limit",
    "cudnn_benchmark": "torch.backends.cudnn.benchmark: the fastest convolutions, whatever workspace they take",
    "ddp": "DistributedDataParallel: a second copy of the gradients in buckets",
    "gradient_as_bucket_view": "DDP's option: gradients live in its buckets, without a second copy; none is freed",
    "processes": "training processes on one machine, one for each of its GPUs (torchrun --nproc-per-node N): each has "
    "host RAM, workers and batches in /dev/shm of its own",
    "workers": "DataLoader(num_workers=N)",
    "prefetch_factor": "DataLoader(prefetch_factor=N): batches that each worker keeps ready",
    "persistent_workers": "DataLoader(persistent_workers=True): workers live on, and each comes to read all data",
    "worker_start": "how workers begin: `fork` shares memory until it is written to; `spawn` (forkserver too, the "
    "default from Python 3.14 on) gives each Python, PyTorch and a dataset of its own",
    "malloc_trim": "MALLOC_TRIM_THRESHOLD_=131072 in the environment: workers give back what they free",
    "pin_memory": "DataLoader(pin_memory=True): waiting batches are copied to pinned RAM",
    "annotations": "with --data: how the dataset keeps them. `list`: Python lists and dicts, as COCO's API; `buffers`: "
    "one array of bytes, as Detectron2",
    "ram_cache": "with --data: the dataset keeps every image in RAM once it is decoded",
    "mixing": "images that an augmentation makes one of: 4 for mosaic, 2 for mixup or copy-paste",
    "arrays_mb": "arrays that the dataset object itself holds, in MiB",
    "memory_growth": "tf.config.experimental.set_memory_growth: memory is taken as it is needed, not all at once",
    "memory_limit_mb": "tf.config.LogicalDeviceConfiguration(memory_limit=N), in MiB; 0: what TensorFlow takes",
}

CHOICES = {"worker_start": ("fork", "spawn"), "annotations": ("list", "buffers")}

OF_TENSORFLOW = ("memory_growth", "memory_limit_mb")
"""settings that TensorFlow alone has: its jobs list them as their own"""
