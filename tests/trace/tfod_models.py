"""Small pipeline.configs that the Object Detection API trains with: SSD, EfficientDet, R-CNNs, CenterNet.

Written as short as the API allows; images are small and batches of one or two, so that a real step takes seconds.
"""

from __future__ import annotations

_CONV = """{ op: CONV regularizer { l2_regularizer { weight: 0.0004 } }
    initializer { truncated_normal_initializer { stddev: 0.03 } } """
_NORMALISED = f"{_CONV} activation: RELU_6 batch_norm {{ decay: 0.997 scale: true epsilon: 0.001 }} }}"
_PLAIN = f"{_CONV} }}"
_FC = "{ op: FC regularizer { l2_regularizer { weight: 0.0 } } initializer { variance_scaling_initializer { } } }"

_SSD_ANCHORS = "ssd_anchor_generator { num_layers: 6 min_scale: 0.2 max_scale: 0.95 aspect_ratios: [1.0, 2.0, 0.5] }"
_FPN_ANCHORS = """multiscale_anchor_generator {
    min_level: 3 max_level: 7 anchor_scale: 4.0 aspect_ratios: [1.0, 2.0, 0.5] scales_per_octave: 2 }"""
_BIFPN = "bifpn { min_level: 3 max_level: 7 num_iterations: 3 num_filters: 64 }"
_SSD_HEAD = f"convolutional_box_predictor {{ kernel_size: 1 conv_hyperparams {_NORMALISED} }}"
_FPN_HEAD = f"""weight_shared_convolutional_box_predictor {{
    depth: 64 num_layers_before_predictor: 2 kernel_size: 3 conv_hyperparams {_NORMALISED} }}"""


def ssd(
    extractor: str,
    *,
    side: int,
    anchors: str = _SSD_ANCHORS,
    head: str = _SSD_HEAD,
    extractor_more: str = "",
    **training: str,
) -> str:
    return f"""
model {{ ssd {{
  num_classes: 20
  image_resizer {{ fixed_shape_resizer {{ height: {side} width: {side} }} }}
  feature_extractor {{ type: "{extractor}" conv_hyperparams {_NORMALISED}
    override_base_feature_extractor_hyperparams: true {extractor_more} }}
  anchor_generator {{ {anchors} }}
  box_predictor {{ {head} }}
  box_coder {{ faster_rcnn_box_coder {{ }} }}
  matcher {{ argmax_matcher {{ matched_threshold: 0.5 unmatched_threshold: 0.5 force_match_for_each_row: true
    use_matmul_gather: true }} }}
  similarity_calculator {{ iou_similarity {{ }} }}
  encode_background_as_zeros: true
  loss {{ classification_loss {{ weighted_sigmoid_focal {{ }} }} localization_loss {{ weighted_smooth_l1 {{ }} }} }}
}} }}
{_train(**training)}"""


def rcnn(
    extractor: str, *, side: int, masks: bool, crop: int = 14, context: str = "", reader: str = "", **training: str
) -> str:
    mask_head = f"""predict_instance_masks: true mask_height: 15 mask_width: 15
    mask_prediction_conv_depth: 64 mask_prediction_num_conv_layers: 2 conv_hyperparams {_PLAIN}"""
    return f"""
model {{ faster_rcnn {{
  number_of_stages: {3 if masks else 2}
  num_classes: 20
  image_resizer {{ fixed_shape_resizer {{ height: {side} width: {side} }} }}
  feature_extractor {{ type: "{extractor}" first_stage_features_stride: 16 }}
  first_stage_anchor_generator {{ grid_anchor_generator {{ scales: [0.25, 0.5, 1.0] aspect_ratios: [0.5, 1.0, 2.0]
    height_stride: 16 width_stride: 16 }} }}
  first_stage_box_predictor_conv_hyperparams {_PLAIN}
  first_stage_nms_iou_threshold: 0.7
  first_stage_max_proposals: 100
  initial_crop_size: {crop} maxpool_kernel_size: {1 if crop == 17 else 2} maxpool_stride: {1 if crop == 17 else 2}
  second_stage_batch_size: 32
  second_stage_box_predictor {{ mask_rcnn_box_predictor {{ fc_hyperparams {_FC} {mask_head if masks else ""} }} }}
  second_stage_post_processing {{ batch_non_max_suppression {{ max_total_detections: 100 }} score_converter: SOFTMAX }}
  {context}
}} }}
{_train(reader=f"{reader} load_instance_masks: true" if masks else reader, **training)}"""


def center_net(extractor: str, *, side: int, **training: str) -> str:
    focal = "classification_loss { penalty_reduced_logistic_focal_loss { alpha: 2.0 beta: 4.0 } }"
    return f"""
model {{ center_net {{
  num_classes: 20
  feature_extractor {{ type: "{extractor}" }}
  image_resizer {{ fixed_shape_resizer {{ height: {side} width: {side} }} }}
  object_detection_task {{ task_loss_weight: 1.0 offset_loss_weight: 1.0 scale_loss_weight: 0.1
    localization_loss {{ l1_localization_loss {{ }} }} }}
  object_center_params {{ object_center_loss_weight: 1.0 min_box_overlap_iou: 0.7 max_box_predictions: 100 {focal} }}
}} }}
{_train(**training)}"""


def _train(*, batch: str = "1", more: str = "", reader: str = "", averages: str = "false") -> str:
    return f"""
train_config {{
  batch_size: {batch}
  optimizer {{
    momentum_optimizer {{ learning_rate {{ constant_learning_rate {{ learning_rate: 0.001 }} }} }}
    use_moving_average: {averages}
  }}
  {more}
}}
train_input_reader {{ max_number_of_boxes: 30 tf_record_input_reader {{ input_path: "train.record" }} {reader} }}
"""


CONFIGS = {
    "ssd_mobilenet_tf2": ssd("ssd_mobilenet_v2_keras", side=224, batch="2", averages="true"),
    "ssd_resnet_fpn_tf2": ssd("ssd_resnet50_v1_fpn_keras", side=192, anchors=_FPN_ANCHORS, head=_FPN_HEAD),
    "faster_rcnn_tf2": rcnn(
        "faster_rcnn_resnet50_keras", side=192, masks=False, more="gradient_clipping_by_norm: 10.0"
    ),
    "mask_rcnn_tf2": rcnn("faster_rcnn_resnet50_keras", side=192, masks=True),
    "ssd_inception_tf1": ssd("ssd_inception_v2", side=224, batch="2"),
    "faster_rcnn_tf1": rcnn("faster_rcnn_resnet50", side=512, masks=False),
    "efficientdet_tf2": ssd(
        "ssd_efficientnet-b0_bifpn_keras", side=256, anchors=_FPN_ANCHORS, head=_FPN_HEAD, extractor_more=_BIFPN
    ),
}
BY_CHANCE = {
    "center_net_tf2": center_net("resnet_v1_50_fpn", side=192, batch="2"),
    "context_rcnn_tf2": rcnn(
        "faster_rcnn_resnet50_keras",
        side=192,
        masks=False,
        reader="load_context_features: true",
        context="context_config { max_num_context_features: 500 context_feature_length: 2057 }",
    ),
}
"""whose order, and so whose peak, differs from process to process by more than 3 %"""

SLIM_FPN = ssd("ssd_resnet50_v1_fpn", side=192, anchors=_FPN_ANCHORS, head=_FPN_HEAD, batch="1")
"""as CONFIGS["ssd_resnet_fpn_tf2"], in TensorFlow 1"""
