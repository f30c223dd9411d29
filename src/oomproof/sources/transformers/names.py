"""Configs that people know by a name on the Hub: what differs from the default of their kind.

Sizes are those of the papers and of the checkpoints of these names. A name that is not here is looked for among the
kinds of configs (``detr``), local files, and what is on this machine from earlier downloads.
"""

from __future__ import annotations

from typing import Any

_SEGFORMER = {
    "b0": ([32, 64, 160, 256], [2, 2, 2, 2], 256),
    "b1": ([64, 128, 320, 512], [2, 2, 2, 2], 256),
    "b2": ([64, 128, 320, 512], [3, 4, 6, 3], 768),
    "b3": ([64, 128, 320, 512], [3, 4, 18, 3], 768),
    "b4": ([64, 128, 320, 512], [3, 8, 27, 3], 768),
    "b5": ([64, 128, 320, 512], [3, 6, 40, 3], 768),
}
_CONVNEXT = {
    "tiny": ([96, 192, 384, 768], [3, 3, 9, 3]),
    "small": ([96, 192, 384, 768], [3, 3, 27, 3]),
    "base": ([128, 256, 512, 1024], [3, 3, 27, 3]),
    "large": ([192, 384, 768, 1536], [3, 3, 27, 3]),
}
_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}

NAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "detr-resnet-50": ("detr", {}),
    "detr-resnet-101": ("detr", {"backbone_config.backbone": "resnet101"}),
    "conditional-detr-resnet-50": ("conditional_detr", {}),
    "deformable-detr": ("deformable_detr", {}),
    "rtdetr_r50vd": ("rt_detr", {}),
    "mask2former-swin-small": ("mask2former", {}),
    "mask2former-swin-tiny": ("mask2former", {"backbone_config.depths": [2, 2, 6, 2]}),
    "vit-base-patch16-224": ("vit", {}),
    "vit-large-patch16-224": ("vit", _LARGE),
    "bert-base-uncased": ("bert", {}),
    "bert-large-uncased": ("bert", _LARGE),
    "distilbert-base-uncased": ("distilbert", {}),
    "gpt2": ("gpt2", {}),
    **{
        f"segformer-{size}": ("segformer", {"hidden_sizes": wide, "depths": deep, "decoder_hidden_size": decoder})
        for size, (wide, deep, decoder) in _SEGFORMER.items()
    },
    **{
        f"convnext-{size}-224": ("convnext", {"hidden_sizes": wide, "depths": deep})
        for size, (wide, deep) in _CONVNEXT.items()
    },
}

USUAL_SIZES = {
    "detr": (800, 1066), "conditional_detr": (800, 1066), "deformable_detr": (800, 1066), "rt_detr": (640, 640),
    "mask2former": (512, 512), "segformer": (512, 512),
}  # fmt: skip
"""height x width that their papers train with, or about"""
