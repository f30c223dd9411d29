"""Where in the code it happened: what names of frames and files mean."""

from __future__ import annotations

import re

from oomproof.diagnosis.facts import Failure, Frame
from oomproof.diagnosis.patterns import Pattern, any_of

MATCHING = any_of(
    "boxlist_iou",
    "bbox_overlaps",
    "pairwise_iou",
    "pairwise_ioa",
    r"\bbox_iou\b",
    "box_iou_rotated",
    "generalized_box_iou",
    "_?assigner",
    r"\btal\.py",
    "[Mm]atcher",
    "assign_targets",
    r"\bbuild_targets\b",
    r"pair_?wise_\w{0,12}(?:iou|cls|cost)",
    "rotate_iou",
    "hungarian",
    "linear_sum_assignment",
    r"\b\w*(?:class|bbox|giou|mask|dice)_cost\b",
    r"\bcost_(?:class|bbox|giou|mask|dice)\b",
    "simota",
    "get_in_boxes_info",
    "dynamic_k_matching",
    "anchor_target",
    "label_and_sample",
    "label_anchors",
    "match_anchors",
    "denoising",
    "prepare_for_cdn",
    "cdn_group",
    "dn_group",
    "dn_components",
    "compute_targets_for_location",
    "_get_targets?_single",
    "iou_calculat",
    "IoUCalculator",
    "box_list_ops",
    "region_similarity",
    "get_assignments",
    "compute_iou",
    "bbox_transform_batch",
)
DENOISING = any_of("denoising", "prepare_for_cdn", "cdn_group", "dn_group", "dn_components")
"""of the above, what makes noised copies of every box"""
MATCHING_QUERIES = any_of("[Hh]ungarian", "linear_sum_assignment", r"\bcost_(?:class|bbox|giou|mask|dice)\b")
"""of the above, what has no anchors"""
IN_A_GRAPH = any_of("IOU", "Match", "TargetAssign", "Intersection", "pairwise", "ArgMax_?\\d*$", "region_similarity")
WEIGHTS_IN_A_GRAPH = Pattern(
    r"(?:^|[/_])(?:weights?|kernel|bias|gamma|beta|embeddings?)\b|Momentum|RMSProp|Adam(?!ax)|Adagrad|Ftrl|Initializer"
    r"|/Assign(?:_\d+)?$|slot_|(?:^|/)save(?:_\d+)?/(?:Restore|Assign)|MatMul_grad/MatMul_1|Conv2DBackpropFilter(?!-\d)|ApplyGradient|/update_"
)
"""operations on weights, their gradients and their optimizer state"""
CREATING_WEIGHTS = any_of(
    "add_variable_from_reference", "add_slot", "_create_slots", "add_weight", r"optimizer\.build",
    "global_variables_initializer", r"keras\S{0,40}initializers",
)  # fmt: skip
WHOLE_SET = 5000
"""more than any second stage crops from an image: a first side of that length is a whole set, fed at once"""
_TAKES_APART = Pattern(r"^(?:GatherV?2?|StridedSlice|Slice|Cast|RealDiv|Mul|Sub|Split|Unpack|Shuffle)$")
"""operations by which fit() and the user's own lines cut or scale an array, run by themselves"""
_MAKES_A_FIRST_VALUE = Pattern(
    r"^(?:Fill|ZerosLike|OnesLike|Stateless(?:Random|Truncated)\w*|RandomUniform|TruncatedNormal)$"
)
"""operations that TensorFlow ran by themselves, in no step: what weights and optimizer state begin with"""
_VARIABLES_KERNEL = Pattern(r"failed at (?:assign_op|variable_ops|resource_variable_ops|training_ops)\b")
MAKING_A_TENSOR = any_of("convert_to_eager_tensor", "_EagerConst", "from_tensor_slices", "convert_to_tensor")
EVALUATING = any_of(
    r"\bval(?:id(?:at\w*)?)?(?:_\w+)?\b",
    r"\bevaluat\w*",
    r"\beval(?:_\w+)?\b",
    r"(?:^|\s)test\b(?=[\s(])",
    r"\btest_(?:step|loop|epoch|model|one)\w*",
    r"\b(?:single|multi)_gpu_test\b",
    r"\binference\w*",
    "evaluator",
    "coco_eval",
    "validation",
    r"\bpredict(?:ion)?(?:_step|_loop|_epoch)?\b",
    flags=re.IGNORECASE,
)
_TRAINING_CALL = Pattern(r"\b(?:fit|fit_\w+|train|train_\w+|main|launch|spawn)\s?\(")
"""code that hands a validation set to a training is no evaluation"""
POSTPROCESSING = any_of(
    "paste_mask",
    "_do_paste",
    "mask_iou",
    "post_?process",
    "process_mask",
    "scale_masks",
    "masks?_to_\\w*rle",
    "get_seg_masks",
    "nested_concat",
    "ragged_concat",
    "nested_gather",
    "sem_seg_postprocess",
    "_upsample_masks",
    "resize_masks",
    "coco_eval",
    "multiclass_nms",
    "batched_nms",
    "update_metric",
    "torchmetrics",
    "mean_ap",
    "ap_per_class",
    "confusion",
    "panoptic_fus",
    "instance_inference",
    "semantic_inference",
    "F\\.interpolate\\(.*mask",
    flags=re.IGNORECASE,
)
ALL_PREDICTIONS = Pattern(r"ragged_concat")
SUPPRESSION = Pattern(r"\bnms\b|non_?max_?suppression|(?:batched|multiclass)_nms", re.IGNORECASE)
SAFE_EVALUATION = any_of(
    "decorate_context",
    "evaluation_loop",
    "prediction_step",
    "inference_on_dataset",
    "inference_mode",
    "no_grad",
    "lightning",
    "mmengine",
    "mmcv",
    "mmdet",
    "mmseg",
    "ultralytics",
)
"""frames that show that gradients are off"""
DESERIALIZING = any_of(
    "_cuda_deserialize",
    "default_restore_location",
    "restore_location",
    r"serialization\.py",
    "_load_unlocked",
    "persistent_load",
    "safe_open",
    "load_file",
)
LOADING = any_of(
    DESERIALIZING.pattern,
    "load_state_dict",
    "load_checkpoint",
    "load_from_checkpoint",
    r"resume_from(?!\w*=)",
    r"\bresume\b(?!=)",
    r"\brestore_(?:checkpoint|optimizer|model|state)",
    "load_optimizer",
    "_optimizer_to_device",
)
SAVING = any_of(
    r"_state_dict_utils\.py",
    r"_full_\w*state_dict",
    r"\bfsdp_save\w*",
    "_gather_state_dict",
    r"_consolidated_\w*state_dict",
)
"""a checkpoint of a model in shards is put together whole"""
COPYING_STATE = Pattern(
    r"deepcopy\([^)]{0,60}(?:state|optim|model|net|ema|weights)|\.state_dict\(\)[^\n]{0,60}\.clone\(|ModelEMA\(|AveragedModel\("
)
"""code that makes a second set of weights or optimizer state"""
KEEPING = any_of(
    r"loss\w*\s*\+=\s*(?!.*(?:item\(\)|detach))\w*loss",
    r"append\((?!.*(?:item|detach|cpu))\w*loss",
    "retain_graph=True",
)
_IN_A_STEP = Pattern(r"^(?:forward|backward|run_backward|_(?:wrapped_)?call_impl|train(?:ing)?_step|compute_loss)$")
"""functions below which nothing of what the lines above them say is going on any more"""
FIRST_USE = any_of(
    "_cuda_init", "_lazy_init", "set_device", r"\.to\(", r"\.cuda\(", "_apply", "torch\\.zeros\\(1", "map_location"
)
OPTIMIZER = any_of(r"optim[/\\]\w+\.py", r"optim\w*\.step\(", "zeros_like\\(p", "_init_group", "exp_avg")
"""where an optimizer works; code that only hands one on, as mmcv's train_step(data, self.optimizer), is none"""
PADDING = any_of("nested_tensor", "pad_sequence", "batch_images", "image_list", "from_tensors", "collate")

DECODING_MASKS = any_of(
    "poly2mask",
    "annToMask",
    "BitmapMasks",
    "polygons?_to_(?:bit)?mask",
    "convert_coco_poly",
    "load_mask",
    "_load_masks",
    "rle_?[Dd]ecode",
    "frPyObjects",
)
MASKS = any_of(
    DECODING_MASKS.pattern, "LoadAnnotations", "mask_util", "expand_mask", "resize_mask", "minimize_mask", r"\bmasks?\b"
)
BACKWARD = any_of(r"\.backward\(", "run_backward", r"GradientTape", r"tape\.gradient\(")
RESULTS = any_of(
    "cocoeval",
    "pycocotools",
    "results2json",
    "collect_results",
    "loadRes",
    r"\.accumulate\(\)",  # COCOeval's; gradients are accumulated too
    "evaluat",
    "summarize",
    "all_gather",
    "gather_object",
    "lvis",
    "format_results",
    "mean_ap",
    "per_image_eval",
    "compute_metrics",
)
GENERATORS = any_of(
    "enqueuer",
    r"data_utils\.py",
    "data_adapter",
    "fit_generator",
    "ImageDataGenerator",
    r"keras.*(?:generator|sequence|iterator)",
    "py_dataset_adapter",
    flags=re.IGNORECASE,
)
WHOLE = any_of(
    r"np\.(?:load|stack|vstack|array|concatenate|append|zeros|empty|asarray|ones)\(",
    "load_data",
    "load_dataset",
    "load_images",
    "read_csv",
    "from_tensor_slices",
    "convert_to_eager_tensor",
    "to_categorical",
    "read_all",
    "train_test_split",
    "pickle.load",
    "astype\\(",
)
CACHING = any_of(
    "cache_images", "cache_ram", "load_image\\b", r"cache=", "CacheDataset", "cached_dataset", "update_img_cache"
)
IN_A_WORKER = any_of(
    r"_utils/worker\.py",
    r"_utils/fetch\.py",
    "_worker_loop",
    r"^(?!\S*[/\\](?:numpy|h5py|pandas|zarr)[/\\]).*__getitem__",
    "collate",
    "pipelines?/",
    "transforms",
    "albumentations",
    "augment",
    "mosaic",
    "default_convert",
)
LIBRARY = Pattern(r"site-packages|dist-packages|/lib/python|<frozen|importlib|\\lib\\", re.IGNORECASE)


_OF_TORCH = Pattern(r"(?:site|dist)-packages[/\\]torch[/\\]|[/\\]torch[/\\]_")
_NETWORK = any_of(
    r"torch[/\\]nn[/\\]",
    r" forward ",
    r"_forward\b",
    r"\bforward_\w+",
    r"\bF\.\w+\(",
    r"\b(?:self\.)?\w*(?:net|model|backbone|encoder|decoder|head|module|unet|detector)\w*\(",
)


def in_network(failure: Failure) -> bool:
    """Whether the innermost lines are the network's own; true as well where there are no lines to tell by."""
    inner = failure.frames[-3:]
    return not inner or any(_NETWORK.search(f"{frame.file} {frame.name} {frame.code}") for frame in inner)


def describe_frame(frame: Frame) -> str:
    return f"{frame.file} {frame.name} {_without_comment(frame.code)}"


def _without_comment(code: str) -> str:
    """What the line does: YOLOv5's training passes one with the comment «single-scale inference, train»."""
    return code.split("  # ", 1)[0]


def frames_outside_torch(failure: Failure) -> list[Frame]:
    """Frames that may tell of an evaluation: PyTorch's own do not, as ``_dynamo/eval_frame.py`` in any training."""
    return [frame for frame in failure.frames if not _OF_TORCH.search(frame.file)]


def find_frame(failure: Failure, pattern: Pattern) -> Frame | None:
    """The innermost frame that the pattern knows."""
    return next((frame for frame in reversed(failure.frames) if pattern.search(describe_frame(frame))), None)


def find_frame_outside_steps(failure: Failure, pattern: Pattern) -> Frame | None:
    """The innermost frame that the pattern knows, unless a step of the training runs within it."""
    for frame in reversed(failure.frames):
        if _IN_A_STEP.search(frame.name):
            return None
        # trainer.train(resume_from_checkpoint=...) is the whole training, not the loading alone.
        called = f"{frame.file} {frame.name}" if _TRAINING_CALL.search(frame.code) else describe_frame(frame)
        if pattern.search(called):
            return frame
    return None


def find_word_of_evaluation(frame: Frame) -> str:
    """Where the frame says that it evaluates: name, code, file, or nothing."""
    if EVALUATING.search(f"{frame.name} "):
        return "name"
    code = _without_comment(frame.code)
    if EVALUATING.search(code) and not _TRAINING_CALL.search(code):
        return "code"
    return "file" if EVALUATING.search(frame.file.replace("\\", "/").rsplit("/", 1)[-1]) else ""


def own(failure: Failure) -> str:
    """The innermost line that is the user's, not a library's."""
    frame = next((frame for frame in reversed(failure.frames) if not LIBRARY.search(frame.file)), None)
    frame = frame or (failure.frames[-1] if failure.frames else None)
    return frame.place if frame else ""


def copies_an_array(failure: Failure) -> bool:
    """Whether TensorFlow was putting an array of the program's onto the GPU as a whole."""
    if failure.family != "tensorflow":
        return False
    if "EagerConst" in f"{failure.op} {failure.quote}" or find_frame(failure, MAKING_A_TENSOR) is not None:
        return True
    return len(failure.shape) == 4 and failure.shape[0] >= WHOLE_SET and _TAKES_APART.search(failure.op) is not None


def is_weight(failure: Failure) -> bool:
    """Whether the tensor that TensorFlow could not place is a weight, its gradient or its optimizer state."""
    if failure.family != "tensorflow" or len(failure.shape) not in (0, 1, 2, 4):
        return False
    first_value = len(failure.shape) in (1, 2) and _MAKES_A_FIRST_VALUE.search(failure.op)
    return bool(
        first_value
        or WEIGHTS_IN_A_GRAPH.search(failure.op)
        or _VARIABLES_KERNEL.search(failure.quote)
        or find_frame(failure, CREATING_WEIGHTS)
    )
