"""Keys that tutorials and forums name and Detectron2 does not have: what people mean by them, and what does it.

Each was seen in public code that sets it on a Detectron2 ``cfg``, or in configs of kindred frameworks; each is absent
from Detectron2's defaults.
"""

from __future__ import annotations

import re

_RULES: tuple[tuple[str, str], ...] = (
    # SOLVER.ACCUMULATION_STEPS, .ACCUMULATE_GRAD_ITER, .ACCUM_STEPS, .GRAD_ACCUM_ITERS, .GRADIENT_ACCUMULATION_STEPS
    (
        r"ACCUM|GRAD_ACC|VIRTUAL_BATCH",
        "It has no gradient accumulation; oomproof has a hook for it (docs/detectron2.md), which `oomproof fit` plans",
    ),
    (
        r"(USE|GRADIENT|GRAD|ACTIVATION)_CHECKPOINT|WITH_CP$|(\.|_)RECOMPUTE",
        "It has no activation checkpointing by key; oomproof.run.detectron2.checkpoint_stages does it in one call",
    ),
    (
        r"FP16|MIXED_PRECISION|(^|\.)AMP_ENABLED|USE_AMP|BF16|SOLVER\.AMP\.(DTYPE|PRECISION|OPT_LEVEL)",
        "Mixed precision is SOLVER.AMP.ENABLED, always in fp16",
    ),
    (
        r"(^|\.)(BATCH_SIZE|BS|IMS_PER_GPU|IMAGES_PER_GPU|BATCH_SIZE_PER_GPU|SAMPLES_PER_GPU|IMS_PER_DEVICE)$",
        "The batch of all GPUs together is SOLVER.IMS_PER_BATCH",
    ),
    (r"(^|\.)(NUM_|MAX_|TRAIN_)?EPOCHS?$", "The length of the training is SOLVER.MAX_ITER, in steps"),
    (
        r"DATALOADER\.(PREFETCH|PIN_MEMORY|PERSISTENT)",
        "It is an argument of build_detection_train_loader, if at all, and no key",
    ),
    (
        r"^(SOLVER|OPTIMIZER)\.?.*(OPTIMIZER|OPTIM)(_NAME|_TYPE)?$|^OPTIMIZER",
        "It always builds SGD; another optimizer needs a build_optimizer of one's own",
    ),
    (
        r"INPUT\.(IMAGE_SIZE|IMG_SIZE|SIZE|RESIZE|MIN_SIZE|MAX_SIZE|HEIGHT|WIDTH)$|(^|\.)(IMAGE_SIZE|IMG_SIZE|IMGSZ)$",
        "Image sizes are INPUT.MIN_SIZE_TRAIN and INPUT.MAX_SIZE_TRAIN",
    ),
    (r"SOLVER\.(LR|LEARNING_RATE|BASE_LEARNING_RATE)$", "The learning rate is SOLVER.BASE_LR"),
    (
        r"SOLVER\.(GRAD_CLIP|GRADIENT_CLIP|MAX_GRAD_NORM|CLIP_GRAD(_NORM|_VALUE)?$)",
        "Clipping is SOLVER.CLIP_GRADIENTS.ENABLED with CLIP_TYPE and CLIP_VALUE",
    ),
    (r"^(MODEL\.)?NUM_CLASSES$", "Classes are MODEL.ROI_HEADS.NUM_CLASSES, or MODEL.RETINANET.NUM_CLASSES"),
    (
        r"(^|\.)(NUM_GPUS|N_GPUS|GPUS|GPU_IDS?|GPU|WORLD_SIZE)$",
        "The number of GPUs is an argument of launch(), --num-gpus in its tools",
    ),
    (r"^TEST\.(IMS_PER_BATCH|BATCH_SIZE)$", "Tests take one image at a time"),
    (r"^(DATALOADER\.)?(WORKERS|NUM_WORKER|N_WORKERS)$", "Data loading processes are DATALOADER.NUM_WORKERS"),
)


def advice(key: str) -> str:
    """What to do instead of an invented key; empty where it is none that is known."""
    return next((text for pattern, text in _RULES if re.search(pattern, key, re.IGNORECASE)), "")
