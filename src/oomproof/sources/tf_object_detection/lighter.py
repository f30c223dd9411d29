"""Lighter models of the API's zoos, for a training that cannot be made to fit, with what they are published to reach.

Figures: COCO mAP and milliseconds an image, as printed in tensorflow/models, research/object_detection/g3doc:
tf2_detection_zoo.md (COCO 2017), and for masks of TensorFlow 1 tf1_detection_zoo.md (mAP of masks).
"""

from __future__ import annotations

from dataclasses import dataclass

from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.config.dead_fields import tensorflow_of
from oomproof.sources.tf_object_detection.fields import has_mask_head

SHOWN = 3


@dataclass(frozen=True)
class PublishedModel:
    name: str
    """of its config and checkpoint"""
    extractor: str
    """feature_extractor.type, as far as it says which model it is"""
    side: int
    milliseconds: int
    accuracy: float
    """COCO mAP of boxes, in TensorFlow 1 of masks"""


BOXES = (
    PublishedModel("ssd_mobilenet_v2_320x320_coco17_tpu-8", "ssd_mobilenet_v2_keras", 300, 19, 20.2),
    PublishedModel("ssd_mobilenet_v2_fpnlite_320x320_coco17_tpu-8", "ssd_mobilenet_v2_fpn_keras", 320, 22, 22.2),
    PublishedModel("centernet_resnet50_v1_fpn_512x512_coco17_tpu-8", "resnet_v1_50_fpn", 512, 27, 31.2),
    PublishedModel("centernet_resnet101_v1_fpn_512x512_coco17_tpu-8", "resnet_v1_101_fpn", 512, 34, 34.2),
    PublishedModel("ssd_mobilenet_v2_fpnlite_640x640_coco17_tpu-8", "ssd_mobilenet_v2_fpn_keras", 640, 39, 28.2),
    PublishedModel("efficientdet_d0_coco17_tpu-32", "ssd_efficientnet-b0_bifpn_keras", 512, 39, 33.6),
    PublishedModel("ssd_resnet50_v1_fpn_640x640_coco17_tpu-8", "ssd_resnet50_v1_fpn_keras", 640, 46, 34.3),
    PublishedModel("faster_rcnn_resnet50_v1_640x640_coco17_tpu-8", "faster_rcnn_resnet50_keras", 640, 53, 29.3),
    PublishedModel("efficientdet_d1_coco17_tpu-32", "ssd_efficientnet-b1_bifpn_keras", 640, 54, 38.4),
    PublishedModel("faster_rcnn_resnet101_v1_640x640_coco17_tpu-8", "faster_rcnn_resnet101_keras", 640, 55, 31.8),
    PublishedModel("ssd_resnet101_v1_fpn_640x640_coco17_tpu-8", "ssd_resnet101_v1_fpn_keras", 640, 57, 35.6),
    PublishedModel("faster_rcnn_resnet50_v1_800x1333_coco17_gpu-8", "faster_rcnn_resnet50_keras", 800, 65, 31.6),
    PublishedModel("faster_rcnn_resnet50_v1_1024x1024_coco17_tpu-8", "faster_rcnn_resnet50_keras", 1024, 65, 31.0),
    PublishedModel("efficientdet_d2_coco17_tpu-32", "ssd_efficientnet-b2_bifpn_keras", 768, 67, 41.8),
    PublishedModel("centernet_hg104_512x512_coco17_tpu-8", "hourglass_104", 512, 70, 41.9),
    PublishedModel("faster_rcnn_resnet101_v1_1024x1024_coco17_tpu-8", "faster_rcnn_resnet101_keras", 1024, 72, 37.1),
    PublishedModel("faster_rcnn_resnet101_v1_800x1333_coco17_gpu-8", "faster_rcnn_resnet101_keras", 800, 77, 36.6),
    PublishedModel("ssd_resnet50_v1_fpn_1024x1024_coco17_tpu-8", "ssd_resnet50_v1_fpn_keras", 1024, 87, 38.3),
    PublishedModel("efficientdet_d3_coco17_tpu-32", "ssd_efficientnet-b3_bifpn_keras", 896, 95, 45.4),
    PublishedModel("ssd_resnet101_v1_fpn_1024x1024_coco17_tpu-8", "ssd_resnet101_v1_fpn_keras", 1024, 104, 39.5),
    PublishedModel("efficientdet_d4_coco17_tpu-32", "ssd_efficientnet-b4_bifpn_keras", 1024, 133, 48.5),
    PublishedModel("centernet_hg104_1024x1024_coco17_tpu-32", "hourglass_104", 1024, 197, 44.5),
    PublishedModel(
        "faster_rcnn_inception_resnet_v2_640x640_coco17_tpu-8", "faster_rcnn_inception_resnet_v2_keras", 640, 206, 37.7
    ),
    PublishedModel(
        "faster_rcnn_inception_resnet_v2_1024x1024_coco17_tpu-8",
        "faster_rcnn_inception_resnet_v2_keras", 1024, 236, 38.7,
    ),
)  # fmt: skip
MASKS = (
    PublishedModel("mask_rcnn_inception_v2_coco_2018_01_28", "faster_rcnn_inception_v2", 800, 79, 25),
    PublishedModel("mask_rcnn_resnet50_atrous_coco_2018_01_28", "faster_rcnn_resnet50", 800, 343, 29),
    PublishedModel("mask_rcnn_resnet101_atrous_coco_2018_01_28", "faster_rcnn_resnet101", 800, 470, 33),
    PublishedModel(
        "mask_rcnn_inception_resnet_v2_atrous_coco_2018_01_28", "faster_rcnn_inception_resnet_v2", 800, 771, 36
    ),
)


def find_lighter(config: Config, shorter_side: int) -> list[PublishedModel]:
    """Quicker than the present one, the most accurate first; each for as much as it is published to reach."""
    table = MASKS if has_mask_head(config) else BOXES
    present = find_present(config, shorter_side)
    quicker = [each for each in table if present is None or each.milliseconds < present.milliseconds]
    return sorted(quicker, key=lambda each: -each.accuracy)[:SHOWN]


def find_present(config: Config, shorter_side: int) -> PublishedModel | None:
    """The config's own model, of its sizes the one that is nearest."""
    model = config.which("model")
    kind = config.value(f"model.{model}.feature_extractor.type")
    plain = kind.removesuffix("_keras")
    table = MASKS if has_mask_head(config) else BOXES
    found = [each for each in table if plain == each.extractor.removesuffix("_keras")]
    return min(found, key=lambda each: abs(each.side - shorter_side), default=None)


def describe_lighter(config: Config, shorter_side: int) -> tuple[str, ...]:
    """For the end of a plan that found nothing."""
    lighter = find_lighter(config, shorter_side)
    if not lighter:
        return ()
    kind = "masks" if has_mask_head(config) else "boxes"
    present = find_present(config, shorter_side)
    now = f" (now {present.accuracy:g})" if present is not None else ""
    named = ", ".join(f"{each.name} {each.accuracy:g}" for each in lighter)
    if has_mask_head(config):
        start = "from_detection_checkpoint: true"
        zoo = "TF1 zoo" + ("; TF2's has one model with masks" if tensorflow_of(config) == 2 else "")
    else:
        start = 'fine_tune_checkpoint_type: "detection" ("fine_tune" for CenterNet)'
        zoo = "TF2 zoo"
    return (f"a lighter model of the {zoo}, published COCO mAP of {kind}{now}: {named}; start from it with {start}",)
