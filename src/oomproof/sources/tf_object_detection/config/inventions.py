"""Fields that tutorials and answers name and the API does not have: what people mean by them, and what does it.

``input_config.input_height`` and ``input_width`` are copied from page to page; the others are fields of kindred
frameworks, or of flags of the API's programs. A test holds every one against the schema: none exists.
"""

from __future__ import annotations

import re

_SIZE = (
    "The size of images is model.ssd.image_resizer.fixed_shape_resizer.height and .width, or min_dimension and "
    "max_dimension of keep_aspect_ratio_resizer (model.faster_rcnn.image_resizer for Faster R-CNN)"
)
_RULES: tuple[tuple[str, str], ...] = (
    (r"(^|[._])(input|image|img|train)_?(height|width|size|shape|resolution)$|(^|\.)(imgsz|resolution)$", _SIZE),
    (
        r"accum|virtual_batch",
        "It has no gradient accumulation: a smaller train_config.batch_size is all that a config can say; "
        "`oomproof run pipeline.config --accumulate N` accumulates (models of TF2)",
    ),
    (
        r"mixed_precision|fp16|float16|(^|[._])amp(_|$)|half_precision|loss_scal",
        "It has no mixed precision off a TPU, by any field (train_config.use_bfloat16 counts with --use_tpu only); "
        "`oomproof run pipeline.config --precision fp16` has (models of TF2)",
    ),
    (
        r"(gradient|activation|grad)_?checkpoint|recompute|remat",
        "It has no recomputation of activations, by any field; "
        "`oomproof run pipeline.config --recompute` has (models of TF2)",
    ),
    (
        r"num_gpus|num_clones|gpu_ids?$|(^|[._])gpus?$|num_workers$|worker_replicas",
        "GPUs are not in the config: model_main_tf2.py takes all that it sees (CUDA_VISIBLE_DEVICES), and "
        "train_config.batch_size is the batch of all together",
    ),
    (
        r"memory_fraction|allow_growth|memory_growth|gpu_memory|memory_limit",
        "GPU memory is not in the config: TF_FORCE_GPU_ALLOW_GROWTH=true, or tf.config in a script of one's own",
    ),
    (r"^train_config\.(num_|max_|train_)?epochs?$", "The length of a training is train_config.num_steps"),
    (
        r"^train_config\.(learning_rate|lr|initial_learning_rate|momentum|weight_decay)$",
        "Learning rates are in train_config.optimizer.<optimizer>.learning_rate",
    ),
    (
        r"(batch_size_per_gpu|batch_per_gpu|per_gpu_batch|images_per_gpu)",
        "The batch is train_config.batch_size, global",
    ),
)


def advice(path: str) -> str:
    """What to do instead of an invented field; empty for one that is not known as such."""
    return next((text for pattern, text in _RULES if re.search(pattern, path, re.IGNORECASE)), "")
