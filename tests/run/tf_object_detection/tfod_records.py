"""A small set of TFRecords as the Object Detection API reads them, and a config that trains on it.

Each image has a bright square or a dark one on a noisy ground: two classes that a small detector learns within a few
steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

CONFIG = """
model {{ ssd {{
  num_classes: 2
  image_resizer {{ fixed_shape_resizer {{ height: {side} width: {side} }} }}
  feature_extractor {{ type: "ssd_mobilenet_v1_keras" depth_multiplier: 0.25 min_depth: 8 use_depthwise: true
    conv_hyperparams {hyper}
    override_base_feature_extractor_hyperparams: true num_layers: {layers} }}
  anchor_generator {{ ssd_anchor_generator {{ num_layers: {layers} min_scale: 0.3 max_scale: 0.8
    aspect_ratios: [1.0] }} }}
  box_predictor {{ convolutional_box_predictor {{ kernel_size: 1 use_dropout: {dropout} conv_hyperparams {plain} }} }}
  box_coder {{ faster_rcnn_box_coder {{ y_scale: 10.0 x_scale: 10.0 height_scale: 5.0 width_scale: 5.0 }} }}
  matcher {{ argmax_matcher {{ matched_threshold: 0.5 unmatched_threshold: 0.5 force_match_for_each_row: true
    use_matmul_gather: true }} }}
  similarity_calculator {{ iou_similarity {{ }} }}
  encode_background_as_zeros: true
  freeze_batchnorm: {frozen}
  normalize_loss_by_num_matches: true
  loss {{ classification_loss {{ weighted_sigmoid_focal {{ gamma: 2.0 alpha: 0.75 }} }}
    localization_loss {{ weighted_smooth_l1 {{ }} }} }}
  post_processing {{ batch_non_max_suppression {{ score_threshold: 0.01 iou_threshold: 0.6
    max_detections_per_class: 10 max_total_detections: 10 }} score_converter: SIGMOID }}
}} }}
train_config {{
  batch_size: {batch}
  num_steps: {steps}
  data_augmentation_options {{ random_horizontal_flip {{ }} }}
  data_augmentation_options {{ ssd_random_crop {{ }} }}
  data_augmentation_options {{ random_adjust_brightness {{ max_delta: 0.1 }} }}
  optimizer {{
    momentum_optimizer {{ learning_rate {{ constant_learning_rate {{ learning_rate: {rate} }} }}
      momentum_optimizer_value: 0.9 }}
    use_moving_average: false
  }}
  {more}
}}
train_input_reader {{
  max_number_of_boxes: 4 shuffle_buffer_size: 16 num_readers: 2
  label_map_path: "{folder}/labels.pbtxt"
  tf_record_input_reader {{ input_path: "{folder}/train-?.record" }}
}}
"""
_CONV = """{ op: CONV regularizer { l2_regularizer { weight: 0.00004 } }
    initializer { truncated_normal_initializer { stddev: 0.2 } } """
_NORMALISED = f"{_CONV} activation: RELU_6 batch_norm {{ decay: 0.97 scale: true epsilon: 0.001 }} }}"

MASK_RCNN = """
model {{ faster_rcnn {{
  number_of_stages: 3 num_classes: 2
  image_resizer {{ fixed_shape_resizer {{ height: {side} width: {side} }} }}
  feature_extractor {{ type: "faster_rcnn_resnet50_keras" first_stage_features_stride: 16 }}
  first_stage_anchor_generator {{ grid_anchor_generator {{ scales: [0.25, 0.5] aspect_ratios: [1.0]
    height: 64 width: 64 height_stride: 16 width_stride: 16 }} }}
  first_stage_box_predictor_conv_hyperparams {{ op: CONV
    regularizer {{ l2_regularizer {{ weight: 0.0 }} }}
    initializer {{ truncated_normal_initializer {{ stddev: 0.01 }} }} }}
  first_stage_nms_iou_threshold: 0.7 first_stage_max_proposals: 20 first_stage_minibatch_size: 16
  initial_crop_size: 8 maxpool_kernel_size: 2 maxpool_stride: 2
  second_stage_batch_size: 8
  second_stage_box_predictor {{ mask_rcnn_box_predictor {{
    fc_hyperparams {{ op: FC regularizer {{ l2_regularizer {{ weight: 0.0 }} }}
      initializer {{ variance_scaling_initializer {{ }} }} }}
    predict_instance_masks: true mask_height: 15 mask_width: 15
    mask_prediction_conv_depth: 16 mask_prediction_num_conv_layers: 2
    conv_hyperparams {{ op: CONV regularizer {{ l2_regularizer {{ weight: 0.0 }} }}
      initializer {{ truncated_normal_initializer {{ stddev: 0.01 }} }} }} }} }}
  second_stage_mask_prediction_loss_weight: 4.0
  second_stage_post_processing {{ batch_non_max_suppression {{ max_detections_per_class: 20
    max_total_detections: 20 }} score_converter: SOFTMAX }}
}} }}
train_config {{
  batch_size: {batch} num_steps: {steps}
  data_augmentation_options {{ random_horizontal_flip {{ }} }}
  optimizer {{ momentum_optimizer {{ learning_rate {{ constant_learning_rate {{ learning_rate: 0.001 }} }} }}
    use_moving_average: false }}
  gradient_clipping_by_norm: 10.0
}}
train_input_reader {{
  max_number_of_boxes: 4 shuffle_buffer_size: 16 load_instance_masks: true mask_type: PNG_MASKS
  label_map_path: "{folder}/labels.pbtxt"
  tf_record_input_reader {{ input_path: "{folder}/train-?.record" }}
}}
"""


_READER = """
train_input_reader {{
  max_number_of_boxes: 4 shuffle_buffer_size: 16
  label_map_path: "{folder}/labels.pbtxt"
  tf_record_input_reader {{ input_path: "{folder}/train-?.record" }}
}}
"""
CENTER_NET = """
model {{ center_net {{
  num_classes: 2
  feature_extractor {{ type: "resnet_v1_18_fpn" }}
  image_resizer {{ keep_aspect_ratio_resizer {{ min_dimension: {side} max_dimension: {side}
    pad_to_max_dimension: true }} }}
  object_detection_task {{ task_loss_weight: 1.0 offset_loss_weight: 1.0 scale_loss_weight: 0.1
    localization_loss {{ l1_localization_loss {{ }} }} }}
  object_center_params {{ object_center_loss_weight: 1.0 min_box_overlap_iou: 0.7 max_box_predictions: 10
    classification_loss {{ penalty_reduced_logistic_focal_loss {{ alpha: 2.0 beta: 4.0 }} }} }}
}} }}
train_config {{
  batch_size: {batch} num_steps: {steps}
  data_augmentation_options {{ random_horizontal_flip {{ }} }}
  data_augmentation_options {{ random_crop_image {{ min_aspect_ratio: 0.5 max_aspect_ratio: 1.7
    random_coef: 0.25 }} }}
  optimizer {{ adam_optimizer {{ epsilon: 1e-7
    learning_rate {{ constant_learning_rate {{ learning_rate: 0.001 }} }} }} use_moving_average: false }}
}}
""" + _READER  # fmt: skip
EFFICIENT_DET = """
model {{ ssd {{
  num_classes: 2
  image_resizer {{ keep_aspect_ratio_resizer {{ min_dimension: {side} max_dimension: {side}
    pad_to_max_dimension: true }} }}
  feature_extractor {{ type: "ssd_efficientnet-b0_bifpn_keras"
    bifpn {{ min_level: 3 max_level: 7 num_iterations: 3 num_filters: 64 }} conv_hyperparams {swish} }}
  anchor_generator {{ multiscale_anchor_generator {{ min_level: 3 max_level: 7 anchor_scale: 4.0
    aspect_ratios: [1.0, 2.0, 0.5] scales_per_octave: 3 }} }}
  box_predictor {{ weight_shared_convolutional_box_predictor {{ depth: 64 num_layers_before_predictor: 3
    kernel_size: 3 use_depthwise: true class_prediction_bias_init: -4.6 conv_hyperparams {swish} }} }}
  box_coder {{ faster_rcnn_box_coder {{ }} }}
  matcher {{ argmax_matcher {{ matched_threshold: 0.5 unmatched_threshold: 0.5 force_match_for_each_row: true
    use_matmul_gather: true }} }}
  similarity_calculator {{ iou_similarity {{ }} }}
  encode_background_as_zeros: true add_background_class: false
  normalize_loss_by_num_matches: true normalize_loc_loss_by_codesize: true
  loss {{ classification_loss {{ weighted_sigmoid_focal {{ gamma: 1.5 alpha: 0.25 }} }}
    localization_loss {{ weighted_smooth_l1 {{ }} }} }}
}} }}
train_config {{
  batch_size: {batch} num_steps: {steps}
  data_augmentation_options {{ random_scale_crop_and_pad_to_square {{ output_size: {side} scale_min: 0.5
    scale_max: 2.0 }} }}
  optimizer {{ momentum_optimizer {{ learning_rate {{ constant_learning_rate {{ learning_rate: 0.01 }} }}
    momentum_optimizer_value: 0.9 }} use_moving_average: false }}
}}
""" + _READER  # fmt: skip
_SWISH = """{ force_use_bias: true activation: SWISH regularizer { l2_regularizer { weight: 0.00004 } }
    initializer { truncated_normal_initializer { stddev: 0.03 } }
    batch_norm { decay: 0.99 scale: true epsilon: 0.001 } }"""


def write_config(folder: Path, **given: Any) -> Path:
    values = {
        "side": 96, "layers": 4, "frozen": "false", "batch": 8, "steps": 10, "rate": 0.01, "more": "",
        "dropout": "true", "folder": folder, "hyper": _NORMALISED, "plain": f"{_CONV} }}", **given,
    }  # fmt: skip
    path = folder / "pipeline.config"
    path.write_text(CONFIG.format(**values))
    return path


def mask_rcnn_config(folder: Path, **given: Any) -> Path:
    values = {"side": 96, "batch": 2, "steps": 3, "folder": folder, **given}
    path = folder / "mask_rcnn.config"
    path.write_text(MASK_RCNN.format(**values))
    return path


def other_config(folder: Path, name: str, **given: Any) -> Path:
    """Of one of the models that go without masks and slim: CENTER_NET, EFFICIENT_DET."""
    values = {"side": 256, "batch": 4, "steps": 3, "folder": folder, "swish": _SWISH, **given}
    path = folder / f"{name}.config"
    path.write_text({"center_net": CENTER_NET, "efficient_det": EFFICIENT_DET}[name].format(**values))
    return path


def write_records(folder: Path, images: int = 24, side: int = 96, *, masks: bool = False) -> None:
    import tensorflow as tf

    rng = np.random.default_rng(7)
    (folder / "labels.pbtxt").write_text('item { id: 1 name: "bright" }\nitem { id: 2 name: "dark" }\n')
    writers = [tf.io.TFRecordWriter(str(folder / f"train-{place}.record")) for place in range(3)]
    for number in range(images):
        writers[number % 3].write(_example(tf, rng, number, side, masks))
    for writer in writers:
        writer.close()


def _example(tf: Any, rng: Any, number: int, side: int, masks: bool) -> bytes:
    picture = rng.integers(100, 140, (side, side, 3), dtype=np.uint8)
    objects = 1 + number % 3
    boxes, classes, drawn = [], [], []
    for place in range(objects):
        size = int(rng.integers(side // 4, side // 2))
        top, left = (int(each) for each in rng.integers(0, side - size, 2))
        kind = (number + place) % 2
        picture[top : top + size, left : left + size] = 250 if kind == 0 else 5
        boxes.append((top / side, left / side, (top + size) / side, (left + size) / side))
        classes.append(kind + 1)
        mask = np.zeros((side, side, 1), np.uint8)
        mask[top : top + size, left : left + size] = 1
        drawn.append(tf.io.encode_png(mask).numpy())
    encoded = tf.io.encode_jpeg(picture).numpy()
    sides = dict(zip(("ymin", "xmin", "ymax", "xmax"), zip(*boxes, strict=True), strict=True))
    feature, several = tf.train.Feature, tf.train.Features

    def text(*values: bytes) -> Any:
        return feature(bytes_list=tf.train.BytesList(value=values))

    def whole(*values: int) -> Any:
        return feature(int64_list=tf.train.Int64List(value=values))

    content = {
        "image/encoded": text(encoded),
        "image/format": text(b"jpeg"),
        "image/source_id": text(str(number).encode()),
        "image/filename": text(f"{number}.jpg".encode()),
        "image/height": whole(side),
        "image/width": whole(side),
        "image/object/class/label": whole(*classes),
        "image/object/class/text": text(*((b"bright", b"dark")[each - 1] for each in classes)),
        **{
            f"image/object/bbox/{name}": feature(float_list=tf.train.FloatList(value=values))
            for name, values in sides.items()
        },
    }
    if masks:
        content["image/object/mask"] = text(*drawn)
    written: bytes = tf.train.Example(features=several(feature=content)).SerializeToString()
    return written
