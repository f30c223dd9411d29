"""Rules over facts: each yields a Cause, with the log's own numbers, where its mechanics fit."""

from __future__ import annotations

from oomproof.diagnosis.causes import (
    capacity,
    checkpoint,
    device,
    host,
    host_activity,
    host_arrays,
    host_workers,
    leak,
    outside,
    stacks,
    tensorflow,
    workspace,
)
from oomproof.diagnosis.causes.ranking import rank_causes

RULES = (
    outside.other_process,
    outside.memory_cap,
    workspace.cudnn_workspace,
    outside.find_masked_oom,
    outside.without_numbers,
    device.outlier_or_bug,
    device.fragmentation,
    checkpoint.checkpoint_on_gpu,
    leak.leak,
    device.mps_limit,
    device.xla_compile,
    stacks.gt_boxes,
    stacks.evaluation,
    tensorflow.greedy_allocation,
    tensorflow.train_and_eval_together,
    tensorflow.find_retracing,
    tensorflow.find_whole_array,
    capacity.variable_shape,
    capacity.too_big,
    host.shm_too_small,
    host.container_limit,
    host_activity.blame_last_activity,
    host_arrays.eval_results,
    host_arrays.masks,
    host_arrays.giant_image,
    host_arrays.image_cache,
    host_arrays.generators,
    host_arrays.whole_dataset,
    host_workers.workers,
    host.too_small,
)

__all__ = ["RULES", "rank_causes"]
