"""Whose memory it is in a step of the Object Detection API, told by scopes and names. The API itself is not needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oomproof.trace.tf_object_detection.stages import Stages, parts_of, stage_of_name, stage_of_weight


class Scope:
    """Stands for tf.name_scope: scopes nest, and say what they are called."""

    now: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> str:
        Scope.now = (*Scope.now, self.name)
        return "/".join(Scope.now) + "/"

    def __exit__(self, *_: Any) -> None:
        Scope.now = Scope.now[:-1]


class Model:
    def loss(self) -> str:
        return self._assign_targets()

    def _assign_targets(self) -> str:
        return "/".join(Scope.now)


def test_methods_are_stages_the_innermost_first() -> None:
    stages = Stages(SimpleNamespace(name_scope=Scope))
    scope = stages.watch(Model()).loss()
    assert scope == "losses/losses_target_assignment"
    owners = stages.owners([f"{scope}/Encode/mul", f"gradient_tape/{scope}/Encode/mul_grad", "losses/add", "Cast"])
    assert owners["losses"] == "losses"
    assert owners[scope] == "losses.target assignment"
    assert owners[f"{scope}/Encode"] == "losses.target assignment"


def test_layers_belong_to_their_stage() -> None:
    stages = Stages(SimpleNamespace(name_scope=Scope))
    found = stages.owners(["ssd_mobilenet_v2_keras_feature_extractor/model/Conv1/deep/Conv2D", "unknown/place/Mul"])
    assert set(found.values()) == {"feature extractor"}


def test_names_that_the_api_gives() -> None:
    assert stage_of_name("FeatureExtractor") == "feature extractor"
    assert stage_of_name("BoxPredictor_0") == "box head"
    assert stage_of_name("MultipleGridAnchorGenerator") == "anchors"
    assert stage_of_name("something") == ""


def test_weights_by_what_holds_them_or_by_their_names() -> None:
    weight = object()
    model = SimpleNamespace(_mask_rcnn_box_predictor=SimpleNamespace(variables=[weight]), _box_predictor=None)
    assert parts_of(model) == {id(weight): "box head"}
    assert stage_of_weight("FeatureExtractor/InceptionV2/Mixed_3b/weights:0") == "feature extractor"
    assert stage_of_weight("block_1/kernel:0", "feature extractor") == "feature extractor"
    assert stage_of_weight("mask_rcnn_keras_box_predictor/mask_rcnn_mask_head/conv/kernel:0", "box head") == "mask head"
    assert stage_of_weight("mask_rcnn_keras_box_predictor/mask_rcnn_box_head/fc/kernel:0", "box head") == "box head"
    assert stage_of_weight("SecondStageFeatureExtractor/resnet_v1_50/block4/weights") == "box head.features"
    assert stage_of_weight("FirstStageBoxPredictor/ClassPredictor/weights") == "RPN"
    assert stage_of_weight("SecondStageBoxPredictor/MaskPredictor/weights") == "mask head"
    assert stage_of_weight("global_step:0") == "model"
