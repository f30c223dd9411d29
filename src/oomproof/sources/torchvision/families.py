"""What torchvision's models have in common and where they differ, told by name: nothing is imported or built."""

from __future__ import annotations

BACKBONES = ("resnet50", "resnet34", "resnet18")
"""the present one of every model with a ``backbone`` setting first, then lighter ones"""

ROI_SAMPLES, PROPOSALS, CANDIDATES = 512, 2000, 2000
"""torchvision's defaults: RoIs trained an image, proposals an image after NMS, and before it on each level"""

_RCNN = ("fasterrcnn", "maskrcnn", "keypointrcnn")
_OTHER_BACKBONE = (
    "fasterrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "keypointrcnn_resnet50_fpn", "retinanet_resnet50_fpn",
    "fcos_resnet50_fpn",
)  # fmt: skip
_WIDTH = ("mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small")
_TRAINED_LAYERS = {"ssd300": 4, "ssdlite320": 6}
_LEAST_SIDE = {"ssd300": 268}  # its last two layers together take two pixels off each edge of a map with stride 64
_DIVISORS = {"vit_b_16": 16, "vit_l_16": 16, "vit_h_14": 14}


def default_size(model: str, task: str) -> tuple[int, tuple[int, int]]:
    """(batch, (height, width)) of the reference training script."""
    if task == "detection":
        if model.startswith("ssd300"):
            return 4, (300, 300)
        if model.startswith("ssdlite320"):
            return 24, (320, 320)
        if "_320_" in model:
            return 2, (320, 640)
        return 2, (800, 1333)
    if task == "segmentation":
        return 4, (480, 480)
    side = 299 if model == "inception_v3" else 224
    return 32, (side, side)


def is_rcnn(model: str) -> bool:
    """It has region proposals and RoI heads, and so ``roi_samples`` and ``proposals``."""
    return model.startswith(_RCNN)


def has_anchor_scale(model: str) -> bool:
    """Its anchors have sizes in pixels. FCOS has none, SSD's are shares of its input."""
    return is_rcnn(model) or model.startswith("retinanet")


def has_backbone(model: str) -> bool:
    return model in _OTHER_BACKBONE


def skips_first_level(model: str) -> bool:
    """Its pyramid starts at the second stage and gets two further levels, as one-stage detectors have it."""
    return model.startswith(("retinanet", "fcos"))


def has_width(model: str) -> bool:
    return model in _WIDTH


def has_fixed_input(model: str) -> bool:
    """It resizes whatever it is given to the one size it was built for."""
    return model.startswith("ssd")


def least_side(model: str) -> int:
    """Sides of inputs from which on every feature map has a pixel at least."""
    return next((side for prefix, side in _LEAST_SIDE.items() if model.startswith(prefix)), 1)


def is_built_for_one_size(model: str) -> bool:
    """Its windows or its auxiliary classifier fit the size it is usually given, and few others."""
    return model.startswith(("maxvit", "inception_v3"))


def size_divisor(model: str) -> int:
    """What both sides of an image should be multiples of: the patch, else the coarsest stride of usual networks."""
    return _DIVISORS.get(model, 32)


def outputs(model: str, task: str) -> str:
    """What a user gets from the model; another one can stand in for it only if it gives the same."""
    if task != "detection":
        return task
    if model.startswith("maskrcnn"):
        return "masks"
    return "keypoints" if model.startswith("keypointrcnn") else "boxes"


def count_trained_layers(model: str) -> int:
    """How many layers of a pretrained backbone a detector's builder trains unless told otherwise."""
    return next((layers for prefix, layers in _TRAINED_LAYERS.items() if model.startswith(prefix)), 3)


def matches_by_overlap(model: str, task: str) -> bool:
    """Boxes and anchors are matched in a matrix of overlaps; FCOS matches points instead."""
    return task == "detection" and not model.startswith("fcos")


def averages_over_images(model: str, task: str) -> bool:
    """The loss of a batch is the mean of its images' own losses, so that micro-batches add up to the same.

    RetinaNet divides by the foreground of each image and then by the images; R-CNNs, FCOS and SSD divide by counts of
    the whole batch, and segmentation by the pixels that are not ignored (torchvision 0.29).
    """
    return task == "classification" or model.startswith("retinanet")
