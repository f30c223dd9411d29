"""How a training is run, as far as memory is concerned, apart from what the traced step itself decides.

These settings need no new trace: the same Timeline is replayed under other rules.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Runtime:
    """One field per setting; ``oomproof check JOB --set FIELD=VALUE`` changes it."""

    expandable_segments: bool = False
    """PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"""
    max_split_size_mb: int = 0
    """PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:N, in MiB; 0 leaves blocks free to split"""
    cudnn_benchmark: bool = False
    """torch.backends.cudnn.benchmark: fastest convolution algorithms, whatever workspace they take"""
    ddp: bool = False
    """DistributedDataParallel: one more copy of the gradients in buckets"""
    gradient_as_bucket_view: bool = False
    """DDP's option that lets gradients live inside the buckets, so that there is no second copy"""
    workers: int = 0
    """DataLoader(num_workers=N)"""
    prefetch_factor: int = 2
    """DataLoader(prefetch_factor=N): batches each worker keeps ready"""
