"""Which fields of a pipeline.config decide memory, where they are in it, and under which names they are settings."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from oomproof.errors import InputError
from oomproof.files.looking import is_file
from oomproof.sources.tf_object_detection.config.config import Config

BATCH = "batch_size"
FREEZE, FREEZE_PATH = "freeze_variables", "train_config.freeze_variables"
OPTIMIZERS = ("momentum_optimizer", "adam_optimizer", "rms_prop_optimizer")
STATE = {"momentum_optimizer": 1, "adam_optimizer": 2, "rms_prop_optimizer": 2}
"""numbers that each keeps for a weight"""


@dataclass(frozen=True)
class MemoryField:
    """``path`` in the config; the setting has the field's own name."""

    name: str
    path: str
    help: str


_TRAINING = (
    MemoryField(BATCH, "train_config.batch_size", "train_config.batch_size: images a step, of all GPUs together"),
    MemoryField("use_moving_average", "train_config.optimizer.use_moving_average", "one more copy of every weight"),
    MemoryField(
        "unpad_groundtruth_tensors", "train_config.unpad_groundtruth_tensors",
        "ground truth is cut to the objects that an image has before it is matched",
    ),
    MemoryField(
        "retain_original_images", "train_config.retain_original_images",
        "one more copy of every image, a byte a colour, goes along with the batch",
    ),
    MemoryField(
        "max_number_of_boxes", "train_input_reader.max_number_of_boxes",
        "train_input_reader.max_number_of_boxes: ground truth of every image is padded to this number",
    ),
    MemoryField(
        "load_instance_masks", "train_input_reader.load_instance_masks",
        "masks of all padded objects, each as large as the image, go to the device",
    ),
    MemoryField("shuffle_buffer_size", "train_input_reader.shuffle_buffer_size", "records in the shuffle buffer (RAM)"),
    MemoryField("num_readers", "train_input_reader.num_readers", "files that are read at a time (RAM)"),
    MemoryField(
        "num_prefetch_batches", "train_input_reader.num_prefetch_batches", "batches that are kept ready (RAM)"
    ),
    MemoryField(
        "num_parallel_batches", "train_input_reader.num_parallel_batches", "batches that are made at a time (RAM)"
    ),
)  # fmt: skip
_TWO_STAGES = {
    "first_stage_max_proposals": "regions that the first stage keeps of every image",
    "first_stage_minibatch_size": "anchors that the first stage's loss is taken from",
    "second_stage_batch_size": "regions of every image that the box and mask heads train on",
    "initial_crop_size": "side of what is cut out of the feature map for every region",
}
_MASKS = {
    "mask_height": "of the masks that the mask head predicts",
    "mask_width": "of the masks that the mask head predicts",
    "mask_prediction_num_conv_layers": "of the mask head",
    "mask_prediction_conv_depth": "channels of the mask head's layers; 0: the API chooses by classes",
}
MASK_HEAD = "model.faster_rcnn.second_stage_box_predictor.mask_rcnn_box_predictor"


def memory_fields(config: Config) -> tuple[MemoryField, ...]:
    """Those that this config's model reads."""
    found = list(_TRAINING)
    if config.which("model") == "ssd":
        help = "batch normalisation keeps the checkpoint's statistics: for batches of one or two images"
        found.append(MemoryField("freeze_batchnorm", "model.ssd.freeze_batchnorm", help))
    if config.which("model") == "faster_rcnn":
        start = "model.faster_rcnn"
        found += [MemoryField(name, f"{start}.{name}", help) for name, help in _TWO_STAGES.items()]
        if has_mask_head(config):
            found += [MemoryField(name, f"{MASK_HEAD}.{name}", help) for name, help in _MASKS.items()]
    return tuple(found)


def has_mask_head(config: Config) -> bool:
    """Whether the model is trained to predict masks."""
    if config.which("model") == "center_net":
        return config.value("model.center_net.mask_estimation_task") is not None
    return (
        config.which("model") == "faster_rcnn"
        and config.is_set(MASK_HEAD)
        and bool(config.value(f"{MASK_HEAD}.predict_instance_masks"))
    )


def split_patterns(given: Any) -> tuple[str, ...]:
    """Patterns of freeze_variables, of a text with commas between them.

    >>> split_patterns("FeatureExtractor, BoxPredictor_0")
    ('FeatureExtractor', 'BoxPredictor_0')
    """
    parts = given.split(",") if isinstance(given, str) else given
    return tuple(part.strip() for part in parts if part.strip())


def optimizer_of(config: Config) -> str:
    return config.which("train_config.optimizer")


def classes_of(config: Config) -> int:
    model = config.which("model")
    return int(config.value(f"model.{model}.num_classes") or 0) if model != "center_net" else 0


def has_tasks(config: Config) -> bool:
    """Whether a CenterNet does more than find objects."""
    tasks = (
        "keypoint_estimation_task", "mask_estimation_task", "densepose_estimation_task", "deepmac_mask_estimation"
    )  # fmt: skip
    return config.which("model") == "center_net" and any(config.is_set(f"model.center_net.{each}") for each in tasks)


def require_model(config: Config) -> str:
    """The model's kind; InputError for one that cannot be forecast."""
    model = config.which("model")
    if model not in ("ssd", "faster_rcnn", "center_net"):
        raise InputError(
            f"{config.name}: model {{ {model or '...'} }} cannot be forecast; expected ssd, faster_rcnn or center_net"
        )
    return model


def refuse_unavailable(config: Config, tensorflow: int) -> None:
    """InputError for what no TensorFlow of today can build: parts of tf.contrib, which ended with 1.15, and tfio."""
    matcher, rewriter, deepmac = "model.ssd.matcher", "graph_rewriter", "model.center_net.deepmac_mask_estimation"
    if config.which("model") == "ssd" and config.which(matcher) == "bipartite_matcher":
        raise InputError(
            f"{config.where(matcher)}: {matcher}: expected argmax_matcher; got bipartite_matcher, which needs "
            "tf.contrib, gone since TensorFlow 2.0. argmax_matcher { force_match_for_each_row: true } comes nearest"
        )
    if tensorflow == 1 and config.is_set(f"{rewriter}.quantization"):
        raise InputError(
            f"{config.where(rewriter)}: {rewriter}: training with quantization cannot be forecast: it needs "
            "tf.contrib, gone since TensorFlow 2.0. Remove it, and the forecast is of the training without: less than "
            "yours takes, since every activation is quantized into a copy"
        )
    if config.which("model") == "center_net" and config.is_set(deepmac) and find_spec("tensorflow_io") is None:
        raise InputError(
            f"{config.where(deepmac)}: {deepmac}: DeepMAC cannot be forecast without the package tensorflow-io, which "
            "the API computes colours with; install one that goes with your TensorFlow"
        )


def require_label_map(config: Config) -> None:
    """InputError where keypoints have no names: the API reads them from a file when it builds the model."""
    path = "model.center_net.keypoint_label_map_path"
    if config.which("model") != "center_net" or not config.is_set(path) or "://" in config.value(path):
        return
    if not is_file(config.value(path)):
        raise InputError(
            f"{config.where(path)}: {path}: expected the label map that names the keypoints, which the API reads to "
            f"build the model; there is no file {config.value(path)}. Put your own there"
        )


def set_fields(config: Config, settings: dict[str, Any]) -> dict[str, Any]:
    """Values by path, for those settings that the config does not have already."""
    return {
        each.path: settings[each.name]
        for each in memory_fields(config)
        if each.name in settings and settings[each.name] != config.value(each.path)
    }
