"""SSD with a feature pyramid: for small objects in a large input, which a plain SSD cannot make within the budget.

Extractor, anchors and head change together, as in the published configs of these extractors (levels 3 to 7, anchors
of four strides, two scales an octave, a head that all levels share); losses, matcher and data stay as they are.
"""

from __future__ import annotations

from typing import Any

from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.config.dead_fields import tensorflow_of

SETTING = "feature_extractor"
_SSD = "model.ssd"
_TYPE = f"{_SSD}.feature_extractor.type"
_LEVELS = {"min_level": 3, "max_level": 7}
_DEPTHS = {"ssd_mobilenet_v2_fpn": 128, "ssd_resnet50_v1_fpn": 256}
"""channels of pyramid and head in the published configs"""


def pyramids_for(config: Config) -> tuple[str, ...]:
    """Extractors with a pyramid that may take the place of the present one, the lightest first; none where it is one
    already."""
    if config.which("model") != "ssd" or not config.is_set(f"{_SSD}.anchor_generator.ssd_anchor_generator"):
        return ()
    if not config.is_set(f"{_SSD}.box_predictor.convolutional_box_predictor"):
        return ()
    ending = "_keras" if tensorflow_of(config) == 2 else ""
    return tuple(f"{name}{ending}" for name in _DEPTHS)


def values_for_pyramid(config: Config, chosen: str) -> dict[str, Any]:
    """By path; none where ``chosen`` is what the config has."""
    if config.which("model") != "ssd" or chosen == config.value(_TYPE):
        return {}
    depth = _DEPTHS[chosen.removesuffix("_keras")]
    mobile = "mobilenet" in chosen
    head = f"{_SSD}.box_predictor.convolutional_box_predictor.conv_hyperparams"
    extractor = f"{_SSD}.feature_extractor.conv_hyperparams"
    # A head that all levels share is normalised level by level: the extractor's hyperparameters say how.
    hyperparams = config.value(extractor) or config.value(head)
    predictor = {
        "depth": depth,
        "kernel_size": 3,
        "num_layers_before_predictor": 4,
        "class_prediction_bias_init": -4.6,
        **({"share_prediction_tower": True, "use_depthwise": True} if mobile else {}),
        **({"conv_hyperparams": hyperparams} if hyperparams else {}),
    }
    anchors = {**_LEVELS, "anchor_scale": 4.0, "aspect_ratios": (1.0, 2.0, 0.5), "scales_per_octave": 2}
    return {
        _TYPE: chosen,
        f"{_SSD}.feature_extractor.fpn": {**_LEVELS, "additional_layer_depth": depth},
        **({f"{_SSD}.feature_extractor.use_depthwise": True} if mobile else {}),
        f"{_SSD}.anchor_generator.multiscale_anchor_generator": anchors,
        f"{_SSD}.box_predictor.weight_shared_convolutional_box_predictor": predictor,
        f"{_SSD}.encode_background_as_zeros": True,
    }
