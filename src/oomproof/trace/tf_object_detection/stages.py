"""Whose memory it is, in the words of a detector: feature extractor, RPN, box head, mask head, losses.

The API names few of its operations so. While a step is built, methods of the model put a scope of their own around what
they make; the rest is told by the names that the API gives.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from typing import Any

from oomproof.trace.tensorflow.roles import GRADIENT

METHODS = {
    "_extract_rpn_feature_maps": "feature extractor",
    "_predict_rpn_proposals": "RPN",
    "_postprocess_rpn": "RPN.proposals",
    "_remove_invalid_anchors_and_predictions": "RPN",
    "_box_prediction": "box head",
    "_compute_second_stage_input_feature_maps": "box head.cropped regions",
    "_extract_box_classifier_features": "box head.features",
    "_predict_third_stage": "mask head",
    "_format_groundtruth_data": "ground truth",
    "_sample_box_classifier_batch": "box head.sampling",
    "loss": "losses",
    "_loss_rpn": "losses.RPN",
    "_loss_box_classifier": "losses.box and mask",
    "_assign_targets": "losses.target assignment",
    "_apply_hard_mining": "losses.hard mining",
    "_compute_object_center_loss": "losses.object centers",
    "_compute_object_detection_losses": "losses.boxes",
    "_compute_keypoint_estimation_losses": "losses.keypoints",
    "_compute_segmentation_losses": "losses.masks",
    "_compute_track_losses": "losses.tracks",
}
"""methods of the API's models, and the stage that they are"""
PARTS = {
    "_feature_extractor_for_proposal_features": "feature extractor",
    "_feature_extractor_for_box_classifier_features": "box head.features",
    "_first_stage_box_predictor_first_conv": "RPN",
    "_rpn_box_predictor_feature_extractor": "RPN",
    "_first_stage_box_predictor": "RPN",
    "_mask_rcnn_box_predictor": "box head",
    "_box_predictor": "box head",
    "_feature_extractor": "feature extractor",
}
"""attributes of the API's Keras models, and the stage whose weights they hold"""
_BY_NAME = (
    (re.compile(r"^SecondStageFeatureExtractor"), "box head.features"),
    (re.compile(r"^FirstStageBoxPredictor|^Conv$"), "RPN"),  # slim's name for the layer that all anchors share
    (re.compile(r"feature_?extractor", re.IGNORECASE), "feature extractor"),
    (re.compile(r"BoxPredictor", re.IGNORECASE), "box head"),
    (re.compile(r"AnchorGenerator"), "anchors"),
    (re.compile(r"^(ground_truth|unstack)"), "ground truth"),
    (re.compile(r"^(Momentum|SGD|Adam|RMSprop|ExponentialMovingAverage|clip_by_global_norm|cond_\d+)", re.I), "update"),
)

_MASKS = re.compile(r"mask_?head|mask_?predictor|mask_rcnn_mask", re.IGNORECASE)


class Stages:
    """Which scopes belong to which stage; filled while a step is built."""

    def __init__(self, tf: Any) -> None:
        self.tf = tf
        self.scopes: dict[str, str] = {}

    def watch(self, model: Any) -> Any:
        """The model, whose methods from now on say which stage they are."""
        for name, stage in METHODS.items():
            method = getattr(model, name, None)
            if callable(method):
                object.__setattr__(model, name, self._add_scope(method, stage))
        return model

    def _add_scope(self, method: Callable[..., Any], stage: str) -> Callable[..., Any]:
        word = re.sub(r"\W", "_", stage)

        @functools.wraps(method)
        def call_in_scope(*args: Any, **kwargs: Any) -> Any:
            with self.tf.name_scope(word) as scope:
                self.scopes[scope.rstrip("/")] = stage
                return method(*args, **kwargs)

        return call_in_scope

    def owners(self, operations: Iterable[str]) -> dict[str, str]:
        """Scope -> stage, for every scope that operations are in. Layers are not told apart: a network may have 600 of
        them, none of which holds much."""
        found: dict[str, str] = {}
        for name in operations:
            parts = GRADIENT.split(name)[-1].split("/")[:-1]
            above = ""
            for depth, part in enumerate(parts, 1):
                scope = "/".join(parts[:depth])
                if scope not in found:
                    found[scope] = self.scopes.get(scope) or above or stage_of_name(part)
                above = found[scope]
        return {scope: owner for scope, owner in found.items() if owner}


def stage_of_weight(name: str, stage: str = "") -> str:
    """By a weight's name: «FirstStageBoxPredictor/ClassPredictor/weights». ``stage`` is that of what holds it, where
    known; one object of the API holds the weights of both heads."""
    *scopes, _ = name.partition(":")[0].split("/")
    stage = stage or next((found for each in scopes if (found := stage_of_name(each))), "model")
    return "mask head" if stage == "box head" and any(map(_MASKS.search, scopes)) else stage


def parts_of(model: Any) -> dict[int, str]:
    """Stage by id() of a weight, for what a Keras model of the API holds under a name of its own."""
    found: dict[int, str] = {}
    for name, stage in PARTS.items():
        held = getattr(model, name, None)
        for part in held if isinstance(held, (list, tuple)) else [held]:
            for weight in getattr(part, "variables", ()) or ():
                found.setdefault(id(weight), stage)
    return found


def stage_of_name(part: str) -> str:
    """By a name that the API gives; empty where it says nothing."""
    return next((stage for pattern, stage in _BY_NAME if pattern.search(part)), "")
