"""Forecasts made by hand: a Mask R-CNN whose figures one can add up, on GPUs where it fits, might, and does not."""

from __future__ import annotations

from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Forecast, Range, Shortage
from oomproof.memory.settings import Role, Settings
from oomproof.sources.job import Setting

MIB = 1 << 20

SETTINGS = (
    Setting("batch", 1, "images a step", given_as="--batch {value}"),
    Setting("image_size", (800, 1333), "height x width, pixels", given_as="--image-size {value}"),
    Setting("precision", "fp32", "arithmetic of the step", ("fp32", "fp16", "bf16")),
    Setting("optimizer", "sgd", "optimizer", ("sgd", "adamw")),
    Setting("expandable_segments", False, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
)

KINDS = {
    "parameter": 170 * MIB,
    "buffer": 1 * MIB,
    "gradient": 170 * MIB,
    "optimizer": 170 * MIB,
    "activation": 3200 * MIB,
    "input": 25 * MIB,
    "temporary": 1164 * MIB,
    "workspace": 200 * MIB,
}

OWNERS = (
    ("rpn.head.conv.0.0", 1800 * MIB),
    ("backbone.body.layer1.0.conv3", 900 * MIB),
    ("backbone.body.layer2", 700 * MIB),
    ("backbone.fpn.layer_blocks.0.0", 600 * MIB),
    ("roi_heads.mask_head.3.0.a_module_with_a_name_nobody_should_have_given_to_it", 400 * MIB),
    ("", 25 * MIB),
)

ROLES: dict[Role, str] = {"batch": "batch", "image size": "image_size", "precision": "precision", "workers": "workers"}


def mask_rcnn(total: int, name: str = "RTX 3060 12GB") -> Forecast:
    expected, high = 5980 * MIB, 6246 * MIB
    shortage = Shortage(1164 * MIB, "backward", "rpn.head.conv.0.0", "convolution_backward")
    return Forecast(
        job="torchvision:maskrcnn_resnet50_fpn",
        settings=Settings(
            {
                "batch": 2,
                "image_size": (800, 1333),
                "precision": "fp32",
                "optimizer": "sgd",
                "expandable_segments": False,
            },
            ROLES,
        ),
        device=Device(name, total, "ampere", (8, 6)),
        allocated=Range(5100 * MIB, 5000 * MIB, 5300 * MIB),
        reserved=Range(5480 * MIB, 5200 * MIB, 5746 * MIB),
        on_device=Range(expected, 5650 * MIB, high),
        host=Range(3000 * MIB, 2500 * MIB, 4000 * MIB),
        shm=50 * MIB,
        kinds=KINDS,
        owners=OWNERS,
        phase="backward",
        owner="rpn.head.conv.0.0",
        op="convolution_backward",
        phases={"setup": 511 * MIB, "forward": 4000 * MIB, "backward": 5100 * MIB, "optimizer": 681 * MIB},
        shortage=shortage if total < expected else None,
        shortage_at_worst=shortage if total < high else None,
        not_counted=("libraries that your own code loads onto the GPU", "validation between epochs"),
    )
