"""What to do about device memory."""

from __future__ import annotations

import re

from oomproof.diagnosis.causes import places
from oomproof.diagnosis.causes.batch import counts_boxes, find_batch
from oomproof.diagnosis.facts import Facts

TENSORFLOW = ("tfod", "matterport", "keras", "tensorflow")
WITHOUT_PYTHON = ("darknet", "caffe", "caffe2", "dlib")
"""what oomproof cannot trace, and PyTorch's calls are no help in"""
SMI = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv"
GROWTH = "tf.config.experimental.set_memory_growth(gpu, True) before anything else"

_BATCH = {
    "ultralytics": "yolo train ... batch={half}",
    "yolov5": "python train.py --batch-size {half} ...",
    "darknet": "subdivisions=32 or 64 in the .cfg: fewer images of its batch at once",
    "caffe": "batch_size: {half} in the prototxt",
    "caffe2": "TRAIN.IMS_PER_BATCH {half}",
    "dlib": "a smaller mini-batch for train_one_step()",
    "yolox": "python tools/train.py -b {half} ...",
    "timm": "python train.py --batch-size {half} --grad-accum-steps 2 ...",
    "mmdet": "--cfg-options train_dataloader.batch_size={half} (MMDetection 2: data.samples_per_gpu={half})",
    "mmseg": "--cfg-options train_dataloader.batch_size={half} (MMSegmentation 0: data.samples_per_gpu={half})",
    "detectron2": "SOLVER.IMS_PER_BATCH {half} (and SOLVER.BASE_LR by the same factor)",
    "maskrcnn-benchmark": "SOLVER.IMS_PER_BATCH {half}",
    "transformers": "--per_device_train_batch_size {half} --gradient_accumulation_steps 2",
    "lightning": "DataLoader(batch_size={half}) with Trainer(accumulate_grad_batches=2)",
    "tfod": "train_config {{ batch_size: {half} }} in pipeline.config",
    "matterport": "IMAGES_PER_GPU = {half} in the Config",
    "keras": "model.fit(..., batch_size={half}), or dataset.batch({half})",
    "tensorflow": "dataset.batch({half})",
    "jax": "batch_size={half}, or two micro-batches with optax.MultiSteps(tx, 2)",
    "paddle": "TrainReader.batch_size: {half}",
    "nnunet": "nnUNetv2_plan_experiment -gpu_memory_target 6 ... (GB), then train with these plans",
}
_BATCH_OPTION = re.compile(r"--batch[-_]size\b")
_FEWER_BOXES = {
    "tfod": "first_stage_max_proposals: 100 and second_stage_batch_size: 32 in pipeline.config",
    "matterport": "TRAIN_ROIS_PER_IMAGE = 64 and IMAGES_PER_GPU = 1 in the Config",
}
"""where the refused tensor counts boxes, these are what makes it smaller"""
_SMALLER = {
    "ultralytics": "imgsz=512, or a smaller model (yolo11s)",
    "yolov5": "--img 512, or smaller --weights",
    "darknet": "width=416 height=416 in the .cfg, or random=0",
    "caffe2": "TRAIN.SCALES (600,) TRAIN.MAX_SIZE 1000",
    "yolox": "a smaller input_size in the exp file, or a smaller model (yolox_s)",
    "timm": "--img-size 224, --grad-checkpointing, --amp",
    "detectron2": "INPUT.MIN_SIZE_TRAIN (640,) INPUT.MAX_SIZE_TRAIN 1066, or SOLVER.AMP.ENABLED True",
    "mmdet": "a smaller scale in dict(type='Resize', scale=(1066, 640)), or --amp",
    "mmseg": "a smaller crop_size in dict(type='RandomCrop') and the data_preprocessor, or --amp",
    "tfod": "image_resizer { fixed_shape_resizer { height: 512 width: 512 } }, or a smaller feature extractor",
    "matterport": "IMAGE_MAX_DIM = 512 in the Config, BACKBONE = 'resnet50', or model.train(..., layers='heads')",
    "keras": "keras.mixed_precision.set_global_policy('mixed_float16'), or smaller images",
    "tensorflow": "tf.keras.mixed_precision.set_global_policy('mixed_float16'), or smaller images",
    "transformers": "--bf16 --gradient_checkpointing True",
    "lightning": "Trainer(precision='bf16-mixed')",
    "jax": "jax.checkpoint around the blocks, or bfloat16",
}
_BOXES = {
    "mmdet": "train_cfg: assigner=dict(..., gpu_assign_thr=200): matching goes to the CPU above 200 boxes; or crop "
    "the crowded images",
    "detectron2": "crop crowded images: INPUT.CROP.ENABLED True; fewer anchors: MODEL.ANCHOR_GENERATOR.SIZES",
    "ultralytics": "batch={half} (the assigner's matrix is batch x most boxes x anchors), or tile the crowded images",
    "tfod": "train_input_reader {{ max_number_of_boxes: 100 }} in pipeline.config",
    "maskrcnn-benchmark": "crop the crowded images, or move boxlist_iou to the CPU for more than 200 boxes",
}
_EVALUATION = {
    "mmseg": "test_cfg=dict(mode='slide', crop_size=(512, 512), stride=(341, 341)), or a smaller test scale",
    "detectron2": "INPUT.MAX_SIZE_TEST 1066 and TEST.DETECTIONS_PER_IMAGE 50",
    "mmdet": "test_cfg: max_per_img=50, and a smaller test scale",
    "ultralytics": "val=False, or a smaller imgsz and max_det=100",
    "transformers": "--per_device_eval_batch_size 1 --eval_accumulation_steps 1",
    "lightning": "a smaller batch in the evaluation's DataLoader, and .cpu() on what validation_step or predict_step "
    "returns",
    "keras": "a smaller batch of the validation data: val.unbatch().batch(8), or fit(..., validation_batch_size=8)",
    "yolox": "a smaller test_size in the exp file, or a higher test_conf",
    "timm": "--validation-batch-size N/2",
    "yolov5": "--noval, or a smaller --batch-size: validation takes twice as many images at once",
}


def steps(facts: Facts) -> dict[str, str]:
    framework = facts.setup.framework
    fit = _fit(facts)
    of_tensorflow = framework in TENSORFLOW
    less = _less_per_step(facts)
    evaluation = _advise_on_predictions(facts) or _EVALUATION.get(framework, _advise_on_evaluation(facts))
    smaller = "torch.autocast('cuda', torch.bfloat16), smaller images, or checkpointing"
    return {
        "batch_too_big": _batch_or_not(facts) + fit,
        "model_or_image_too_big": _SMALLER.get(framework, smaller) + fit,
        "variable_shape": f"bound the largest batch: a maximal image size, or images of like shape together{fit}",
        "gt_boxes": _boxes(facts),
        "eval_postprocess": evaluation,
        "eval_no_grad": "with torch.no_grad(): around the evaluation, and model.eval() before it; if they are there: "
        "a smaller evaluation batch",
        "leak": _leak(facts),
        "checkpoint_on_gpu": "torch.load(path, map_location='cpu') ; del checkpoint ; torch.cuda.empty_cache()",
        "other_process": _others(facts),
        "fragmentation": _fragmentation(facts),
        "cudnn_workspace": _workspace(facts, fit),
        "tf_greedy_allocation": f"{GROWTH}, or TF_FORCE_GPU_ALLOW_GROWTH=true python train.py",
        "tf_memory_cap": _cap(facts),
        "masked_oom": _advise_on_masked_oom(facts, fit),
        "train_and_eval_together": f"CUDA_VISIBLE_DEVICES=-1 python {_evaluator(facts)} --checkpoint_dir=... (the "
        "evaluation, on the CPU)",
        "retracing": "@tf.function(reduce_retracing=True) with fixed shapes: pad images to one size, "
        "batch(..., drop_remainder=True), tensors instead of Python numbers; in loops model(x), not model.predict(x)",
        "mps_limit": f"{less}{_watermark(facts)}",
        "xla_compile": f"model.compile(..., jit_compile=False), or {less}"
        if of_tensorflow
        else f"{less}, or bfloat16; on more chips, shard the batch and the weights"
        if facts.main is not None and facts.main.device == "TPU"
        else f"{less} ; XLA_PYTHON_CLIENT_MEM_FRACTION=.95 if the pool is the limit",
        "outlier_or_bug": _outlier(facts),
        "benign_warning": _benign(facts),
    }


def _batch_or_not(facts: Facts) -> str:
    """Without a figure in the message, one step shows whether it is the batch at all."""
    bare = facts.main is not None and facts.main.requested is None and facts.main.allocated is None
    return f"{'one step with a batch of 1 shows whether it is the batch ; then ' if bare else ''}{batch_step(facts)}"


def batch_step(facts: Facts) -> str:
    if facts.main is not None and counts_boxes(facts.main):
        return _FEWER_BOXES.get(facts.setup.framework, "fewer boxes or proposals an image, or fewer images a step")
    option = _BATCH_OPTION.search(facts.setup.found.get("batch_option", ""))
    other = f"{option[0]} {{half}}" if option else "DataLoader(batch_size={half})"
    return _BATCH.get(facts.setup.framework, other).format(half=_half(facts))


def _half(facts: Facts) -> str:
    batch = find_batch(facts)
    return str(max(1, batch // 2)) if batch else "N/2"


def _less_per_step(facts: Facts) -> str:
    """A smaller batch where the log shows that there is one to make smaller; smaller images anyway."""
    return f"{batch_step(facts)}, or smaller images" if (find_batch(facts) or 0) > 1 else "smaller images"


def _fit(facts: Facts) -> str:
    """oomproof can search what fits; for PyTorch, so far."""
    if facts.setup.framework in (*TENSORFLOW, *WITHOUT_PYTHON, "jax", "paddle"):
        return ""
    size = (facts.main.total if facts.main else None) or facts.setup.card
    device = f"{size / (1 << 30):.2f}GiB" if size else "DEVICE"
    return f" ; oomproof fit JOB --on {device} finds what fits before the next try"


def _watermark(facts: Facts) -> str:
    """PyTorch's limit can be lifted; Metal's, on the size of one buffer, cannot."""
    if facts.main is not None and facts.main.limit is None:
        return ""
    return "; PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 lifts the limit, at the risk of a frozen Mac"


def _boxes(facts: Facts) -> str:
    framework = facts.setup.framework
    if facts.main is not None and places.find_frame(facts.main, places.DENOISING) is not None:
        return "fewer denoising groups (DINO: dn_number, MMDetection: dn_cfg), or crop the images with the most boxes"
    if framework == "ultralytics" and (find_batch(facts) or 1) == 1:
        return "tile the crowded images"
    if facts.main is not None and places.find_frame(facts.main, places.MATCHING_QUERIES) is not None:
        return "crop the images with the most objects, or fewer queries (and points of a mask) in the model's config"
    return _BOXES.get(framework, _advise_on_crowds(facts)).format(half=_half(facts))


def _advise_on_crowds(facts: Facts) -> str:
    frames = facts.main.frames if facts.main else ()
    if any("torchvision" in frame.file for frame in frames):
        return "oomproof fit JOB --set matching=chunked (same gradients) ; or crop the crowded images"
    return "cap or crop the fullest images"


def _advise_on_predictions(facts: Facts) -> str:
    """Keras' predict keeps what it predicted on the GPU until it has all of it."""
    if facts.main is None or places.find_frame(facts.main, places.ALL_PREDICTIONS) is None:
        return ""
    return "[model.predict_on_batch(batch) for batch in data]: each result is a NumPy array, in RAM"


def _advise_on_evaluation(facts: Facts) -> str:
    if facts.main is not None and places.find_frame(facts.main, places.SUPPRESSION) is not None:
        return (
            "fewer boxes into the suppression: a higher confidence threshold (conf_thres), at most the best 30000 of "
            "an image; and a smaller evaluation batch"
        )
    if facts.main is not None and any(frame.name == "sliding_window_inference" for frame in facts.main.frames):
        return "sliding_window_inference(..., sw_device='cuda', device='cpu'): the windows on the GPU, their sum in RAM"
    if facts.main is not None and places.find_frame(facts.main, places.POSTPROCESSING) is None:
        return "a smaller evaluation batch, or smaller images in it ; .cpu() on predictions that are kept"
    return "masks.cpu() before they are pasted, one image at a time; and a smaller evaluation batch"


def _cap(facts: Facts) -> str:
    if facts.main is not None and facts.main.family == "cuda":
        return "raise or remove torch.cuda.set_per_process_memory_fraction(...)"
    if facts.setup.framework == "jax":
        return "XLA_PYTHON_CLIENT_MEM_FRACTION=.95, or without the variable"
    return (
        "raise or remove the cap: LogicalDeviceConfiguration(memory_limit=...), in TensorFlow 1 "
        "gpu_options.per_process_gpu_memory_fraction"
    )


def _evaluator(facts: Facts) -> str:
    job = facts.setup.found.get("eval_job", "")
    return next((name for name in ("legacy/eval.py", "eval.py") if name in job), "model_main_tf2.py")


def _workspace(facts: Facts, fit: str) -> str:
    if facts.setup.framework in TENSORFLOW:
        return f"{GROWTH} ; TF_CUDNN_USE_AUTOTUNE=0 python train.py makes no trials"
    if facts.setup.framework == "jax":
        return (
            "XLA_FLAGS=--xla_gpu_strict_conv_algorithm_picker=false XLA_PYTHON_CLIENT_MEM_FRACTION=.7 python train.py"
        )
    if facts.main is not None and facts.main.family == "handle":
        # All algorithms were refused, the one without scratch memory too.
        return f"{_less_per_step(facts)} ; or torch.backends.cudnn.benchmark = False{fit}"
    return f"torch.backends.cudnn.benchmark = False{fit}"


def _advise_on_masked_oom(facts: Facts, fit: str) -> str:
    if facts.setup.framework in TENSORFLOW:
        return f"{GROWTH} ; nvidia-smi"
    if facts.setup.framework == "jax":
        return "XLA_PYTHON_CLIENT_PREALLOCATE=false python train.py ; nvidia-smi shows who else is on the card"
    return f"nvidia-smi while it runs shows whether the card is full, and by whom{fit}"


def _leak(facts: Facts) -> str:
    if facts.main is not None and facts.main.where == "host":
        if facts.setup.framework in (*TENSORFLOW, "jax"):
            return "memray run train.py shows the line that keeps it ; in loops model(x), not model.predict(x)"
        return "what grows is in Python or in the workers: memray run train.py ; num_workers=0 tells which of them"
    if facts.setup.framework in TENSORFLOW:
        return (
            "total += float(loss) (not the tensor); @tf.function made once, outside the loop ; then watch "
            "tf.config.experimental.get_memory_info('GPU:0')['current'] after each step"
        )
    if facts.setup.framework == "jax":
        return (
            "total += float(loss) (not the array), no arrays in lists ; then watch "
            "jax.local_devices()[0].memory_stats()['bytes_in_use'] after each step"
        )
    if facts.main is not None and facts.main.family == "mps":
        return (
            "total += loss.item() (not loss); .detach().cpu() on whatever goes into a list; torch.mps.empty_cache() "
            "between epochs ; then watch torch.mps.current_allocated_memory() after each step"
        )
    return (
        "total += loss.item() (not loss); .detach().cpu() on whatever goes into a list ; then watch "
        "torch.cuda.memory_allocated() after each step"
    )


def _others(facts: Facts) -> str:
    if facts.main is not None and len(facts.main.others) >= 3:
        return f"torch.cuda.set_device(local_rank) first of all, and torch.load(..., map_location='cpu') ; {SMI}"
    return f"{SMI} ; stop it or choose another card (CUDA_VISIBLE_DEVICES=1)"


def _fragmentation(facts: Facts) -> str:
    failure = facts.main
    family = failure.family if failure else "cuda"
    if family == "tensorflow":
        return "TF_GPU_ALLOCATOR=cuda_malloc_async python train.py"
    if family == "xla":
        return "restart the process, for what it has allocated cannot be moved"
    quote = failure.quote if failure else ""
    variable = "PYTORCH_HIP_ALLOC_CONF" if "HIP out of memory" in quote else "PYTORCH_CUDA_ALLOC_CONF"
    if "reserved in total" not in quote and "cached)" not in quote:
        return f"{variable}=expandable_segments:True python train.py"
    # The wording of versions before 2.1, which have no expandable segments; before 1.10 there is no option at all.
    if "If reserved memory is" in quote:
        return f"{variable}=max_split_size_mb:128 python train.py"
    later = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    return f"torch.cuda.empty_cache() between training and evaluation ; from PyTorch 2.1 on: {later}"


def _outlier(facts: Facts) -> str:
    if facts.main is not None and facts.main.where == "host":
        return "print the shape just before that line; look for a corrupt file, or a wrong size in the annotations"
    return "print the shapes just before that line; leave out the sample with the largest image or the most boxes"


def _benign(facts: Facts) -> str:
    if any(failure.kind == "on_cpu" and failure.op == "boxes" for failure in facts.failures):
        return "if it comes often: a smaller batch, or crop the images with the most boxes"
    if any(failure.kind == "on_cpu" for failure in facts.failures):
        return "nothing has to be done; smaller images would stay on the GPU, which is faster"
    if all(failure.kind == "large_copy" for failure in facts.failures):
        return "nothing has to be done, while RAM suffices: free -g while it runs"
    if any(failure.family == "cuda" for failure in facts.failures):
        return "nothing, if it is rare; if it is frequent, leave the step more room: oomproof fit JOB"
    return "nothing has to be done; if it is slow, more free memory would let cuDNN take faster algorithms"
