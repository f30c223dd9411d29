"""Fields that a program of the API never looks at, whatever else the config says.

Each was looked for in every file of tf-models-research-object-detection 2.8.0.post1 but its tests.
"""

from __future__ import annotations

_LEGACY_TRAINING = "only legacy/train.py, of TensorFlow 1's first years, reads it"
_LEGACY_EVALUATION = "only legacy/eval.py, of TensorFlow 1's first years, reads it"
_OLD_QUEUE = "deprecated: a queue of legacy/train.py; what is prefetched now is train_input_reader.num_prefetch_batches"
_NOWHERE = "no program of the API reads it"
_TF1_ONLY = "only TensorFlow 1's model_main.py reads it"

NEVER_READ: dict[str, str] = {
    "TrainConfig.max_number_of_boxes": "deprecated: train_input_reader.max_number_of_boxes counts",
    "TrainConfig.batch_queue_capacity": _OLD_QUEUE,
    "TrainConfig.num_batch_queue_threads": _OLD_QUEUE,
    "TrainConfig.prefetch_queue_capacity": _OLD_QUEUE,
    "TrainConfig.sync_replicas": _LEGACY_TRAINING,
    "TrainConfig.replicas_to_aggregate": _LEGACY_TRAINING,
    "TrainConfig.startup_delay_steps": _LEGACY_TRAINING,
    "TrainConfig.bias_grad_multiplier": _LEGACY_TRAINING,
    "InputReader.queue_capacity": "deprecated: a queue of legacy/train.py; shuffle_buffer_size counts",
    "InputReader.min_after_dequeue": "deprecated: a queue of legacy/train.py; shuffle_buffer_size counts",
    "InputReader.prefetch_size": "deprecated and read by no program; num_prefetch_batches counts",
    "InputReader.num_parallel_map_calls": "deprecated: num_parallel_batches times the batch is decoded at once",
    "InputReader.use_keypoint_label_map": _NOWHERE,
    "EvalConfig.num_examples": f"deprecated: {_LEGACY_EVALUATION}",
    "EvalConfig.max_evals": f"deprecated: {_LEGACY_EVALUATION}",
    "EvalConfig.eval_interval_secs": _LEGACY_EVALUATION,
    "EvalConfig.save_graph": _LEGACY_EVALUATION,
    "EvalConfig.visualization_export_dir": _LEGACY_EVALUATION,
    "EvalConfig.eval_master": _LEGACY_EVALUATION,
    "EvalConfig.ignore_groundtruth": _LEGACY_EVALUATION,
    "EvalConfig.skip_scores": _LEGACY_EVALUATION,
    "EvalConfig.skip_labels": _LEGACY_EVALUATION,
    "EvalConfig.visualize_groundtruth_boxes": _LEGACY_EVALUATION,
    "EvalConfig.groundtruth_box_visualization_color": _LEGACY_EVALUATION,
    "EvalConfig.keep_image_id_for_visualization_export": _LEGACY_EVALUATION,
    "EvalConfig.eval_instance_masks": _NOWHERE,
    "Ssd.mask_head_config": _NOWHERE,
    "MaskRCNNBoxPredictor.predict_keypoints": _NOWHERE,
    "WeightedL2LocalizationLoss.anchorwise_output": _NOWHERE,
    "WeightedSmoothL1LocalizationLoss.anchorwise_output": _NOWHERE,
    "WeightedSigmoidClassificationLoss.anchorwise_output": _NOWHERE,
    "SigmoidFocalClassificationLoss.anchorwise_output": _NOWHERE,
    "WeightedSoftmaxClassificationLoss.anchorwise_output": _NOWHERE,
    "WeightedSoftmaxClassificationAgainstLogitsLoss.anchorwise_output": _NOWHERE,
    "BootstrappedSigmoidClassificationLoss.anchorwise_output": _NOWHERE,
}

NOT_BY_TF2: dict[str, str] = {
    "TrainConfig.freeze_variables": f"{_TF1_ONLY}: under TF2 all variables are trained, and no memory is saved",
    "TrainConfig.update_trainable_variables": f"{_TF1_ONLY}: under TF2 all variables are trained",
    "TrainConfig.keep_checkpoint_every_n_hours": f"{_TF1_ONLY}; TF2 has --checkpoint_every_n",
    "TrainConfig.summarize_gradients": _TF1_ONLY,
    "EvalConfig.use_dummy_loss_in_eval": _TF1_ONLY,
    "TrainEvalPipelineConfig.graph_rewriter": f"{_TF1_ONLY}: TF2 does not quantize while it trains",
}

NOT_BY_TF1: dict[str, str] = {
    "TrainConfig.fine_tune_checkpoint_version": "only TensorFlow 2's model_main_tf2.py reads it",
    "TrainConfig.run_fine_tune_checkpoint_dummy_computation": "only TensorFlow 2's model_main_tf2.py reads it",
}
