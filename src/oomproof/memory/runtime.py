"""How a training is run, as far as memory is concerned, apart from what the traced step itself decides.

These settings need no new trace: the same Timeline is replayed under other rules.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Runtime:
    """One field per setting; ``oomproof check JOB --set FIELD=VALUE`` changes it (HELP says what it means)."""

    expandable_segments: bool = False
    max_split_size_mb: int = 0
    cudnn_benchmark: bool = False
    ddp: bool = False
    gradient_as_bucket_view: bool = False
    workers: int = 0
    prefetch_factor: int = 2
    memory_growth: bool = False
    memory_limit_mb: int = 0


HELP = {
    "expandable_segments": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    "max_split_size_mb": "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:N, in MiB; 0: no limit",
    "cudnn_benchmark": "torch.backends.cudnn.benchmark: the fastest convolutions, whatever workspace they take",
    "ddp": "DistributedDataParallel: a second copy of the gradients in buckets",
    "gradient_as_bucket_view": "DDP's option: gradients live in its buckets, without a second copy; none is freed",
    "workers": "DataLoader(num_workers=N)",
    "prefetch_factor": "DataLoader(prefetch_factor=N): batches that each worker keeps ready",
    "memory_growth": "tf.config.experimental.set_memory_growth: memory is taken as it is needed, not all at once",
    "memory_limit_mb": "tf.config.LogicalDeviceConfiguration(memory_limit=N), in MiB; 0: what TensorFlow takes",
}

OF_TENSORFLOW = ("memory_growth", "memory_limit_mb")
"""settings that TensorFlow alone has: its jobs list them as their own"""
