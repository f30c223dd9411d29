"""What the API's input pipeline hands to a step: tensors of fixed shapes, ground truth padded to its largest number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oomproof.frameworks.object_detection import part
from oomproof.trace.tf_object_detection.request import StepRequest

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""name of a field -> shape and type of its tensor"""
IMAGES, GROUND_TRUTH = "input images", "padded ground truth"
"""owners of what goes into a step"""


def shapes_of(config: Any, request: StepRequest) -> tuple[Shapes, Shapes]:
    """Features and labels, as ``inputs.train_input`` of the API makes them."""
    fields = part("core.standard_fields").InputDataFields
    classes = part("utils.config_util").get_number_of_classes(config.model)
    reader = config.train_input_reader
    if request.evaluation and config.eval_input_reader:
        reader = config.eval_input_reader[0]
    images, most = request.batch, reader.max_number_of_boxes
    height, width = request.height, request.width
    features = {
        fields.image: ((images, height, width, 3), "float32"),
        fields.true_image_shape: ((images, 3), "int32"),
        "hash": ((images,), "int32"),
    }
    if config.train_config.retain_original_images and not request.evaluation:
        features[fields.original_image] = (images, height, width, 3), "uint8"
    if reader.load_context_features:  # of other images, for a Context R-CNN
        kept = config.model.faster_rcnn.context_config
        most_kept = kept.max_num_context_features
        features[fields.context_features] = (images, most_kept, kept.context_feature_length), "float32"
        features[fields.valid_context_size] = (images,), "int32"
    labels = {
        fields.num_groundtruth_boxes: ((images,), "int32"),
        fields.groundtruth_boxes: ((images, most, 4), "float32"),
        fields.groundtruth_classes: ((images, most, classes), "float32"),
        fields.groundtruth_weights: ((images, most), "float32"),
        fields.groundtruth_confidences: ((images, most, classes), "float32"),
    }
    if reader.load_instance_masks:
        labels[fields.groundtruth_instance_masks] = (images, most, height, width), "float32"
        labels[fields.groundtruth_instance_mask_weights] = (images, most), "float32"
    if reader.num_keypoints:
        labels[fields.groundtruth_keypoints] = (images, most, reader.num_keypoints, 2), "float32"
        labels[fields.groundtruth_keypoint_visibilities] = (images, most, reader.num_keypoints), "bool"
        labels[fields.groundtruth_keypoint_weights] = (images, most, reader.num_keypoints), "float32"
    return features, labels


def count_boxes(tf: Any, labels: dict[str, Any], request: StepRequest) -> dict[str, Any]:
    """Labels in which the number of objects is known, where the request says it: a constant in place of an input."""
    if not request.boxes:
        return labels
    name = part("core.standard_fields").InputDataFields.num_groundtruth_boxes
    most = labels[part("core.standard_fields").InputDataFields.groundtruth_boxes].shape[1]
    return {**labels, name: tf.constant([min(each, most) for each in request.boxes], tf.int32)}
