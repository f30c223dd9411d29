"""Fields of a pipeline.config that exist and do nothing in it, each with the reason.

Found by reading the programs of tf-models-research-object-detection 2.8.0.post1: what model_main_tf2.py (TF2) and
model_main.py (TF1) read of the config, and under which conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oomproof.sources.tf_object_detection.config.config import Config, start_of
from oomproof.sources.tf_object_detection.config.dead_rules import NEVER_READ, NOT_BY_TF1, NOT_BY_TF2
from oomproof.sources.tf_object_detection.config.reading import Entry, Leaf, MessageSection, plain_entry


@dataclass(frozen=True)
class DeadField:
    """``place`` is FILE:LINE:COLUMN."""

    path: str
    place: str
    reason: str
    stops: bool = False
    """the API does not pass over it but stops"""

    def __str__(self) -> str:
        return f"{self.place}: {self.path} {'cannot be used' if self.stops else 'does nothing'}: {self.reason}"


_STOPS = "TF2 stops with a ValueError"


def tensorflow_of(config: Config) -> int:
    """1 or 2: the TensorFlow whose models the config names; 0 where it names none."""
    model = config.which("model")
    if model == "center_net":
        return 2
    if model not in ("ssd", "faster_rcnn"):
        return 0
    kind = config.value(f"model.{model}.feature_extractor.type")
    return 0 if not kind else 2 if kind.endswith("_keras") else 1


def find_dead_fields(config: Config, tensorflow: int | None = None) -> tuple[DeadField, ...]:
    """All of them, in the order of the file; for the TensorFlow that the config is made for, unless one is given."""
    version = tensorflow_of(config) if tensorflow is None else tensorflow
    found = [
        (start_of(entry), path, reason)
        for path, entry, kind, section in _set_fields(config.reading.root, "")
        if (reason := _why_dead(kind, section, entry, version))
    ]
    found += [
        (each.offset, each.path, f"{config.at(each.by)} comes later and counts (text_format.Parse refuses the file)")
        for each in config.reading.overwritten
    ]
    return tuple(
        DeadField(path, config.at(offset), reason, reason.startswith(_STOPS)) for offset, path, reason in sorted(found)
    )


def _set_fields(section: MessageSection, prefix: str) -> Iterator[tuple[str, Entry, str, MessageSection]]:
    """Path, entry, «Message.field» and section of everything that is set."""
    for name, entry in section.entries.items():
        path = f"{prefix}{name}"
        yield path, entry, f"{section.type.name}.{name}", section
        if isinstance(entry, MessageSection):
            yield from _set_fields(entry, f"{path}.")
        elif isinstance(entry, list):
            for number, each in enumerate(entry):
                if isinstance(each, MessageSection):
                    yield from _set_fields(each, f"{path}[{number}].")


def _why_dead(kind: str, section: MessageSection, entry: Entry, version: int) -> str:
    if kind in NEVER_READ:
        return NEVER_READ[kind]
    if version == 1 and kind in NOT_BY_TF1:
        return NOT_BY_TF1[kind]
    if version == 2 and kind in NOT_BY_TF2:
        return NOT_BY_TF2[kind]
    by_message = {
        "TrainConfig": _in_training, "InputReader": _in_reader, "FasterRcnn": _in_faster_rcnn,
        "MaskRCNNBoxPredictor": _in_mask_head,
    }  # fmt: skip
    check = by_message.get(section.type.name, _in_others)
    return check(kind.rpartition(".")[2], section, plain_entry(entry), version)


def _in_training(name: str, section: MessageSection, value: Any, version: int) -> str:
    if name == "use_bfloat16" and value:
        return "it counts on a TPU only (--use_tpu); on GPUs the training stays in float32"
    if name == "load_all_detection_checkpoint_vars" and value and version == 2:
        return f'{_STOPS}; write fine_tune_checkpoint_type: "full" instead'
    about_checkpoint = name in (
        "fine_tune_checkpoint_type", "fine_tune_checkpoint_version", "from_detection_checkpoint",
        "load_all_detection_checkpoint_vars", "run_fine_tune_checkpoint_dummy_computation",
    )  # fmt: skip
    if about_checkpoint and not _value(section, "fine_tune_checkpoint"):
        return "there is no fine_tune_checkpoint"
    if name == "from_detection_checkpoint" and _value(section, "fine_tune_checkpoint_type"):
        return "deprecated: fine_tune_checkpoint_type is set and counts"
    return ""


def _in_reader(name: str, section: MessageSection, value: Any, version: int) -> str:
    if name in ("shuffle_buffer_size", "filenames_shuffle_buffer_size") and not _value(section, "shuffle"):
        return "shuffle is false"
    if name == "mask_type" and not _value(section, "load_instance_masks"):
        return "load_instance_masks is false"
    if name == "frame_index" and _value(section, "input_type") != "TF_SEQUENCE_EXAMPLE":
        return "input_type is not TF_SEQUENCE_EXAMPLE"
    return ""


def _in_faster_rcnn(name: str, section: MessageSection, value: Any, version: int) -> str:
    if name == "inplace_batchnorm_update" and value and version == 2:
        return _STOPS
    second_stage = name.startswith(("second_stage_", "maxpool_")) or name == "initial_crop_size"
    if second_stage and _value(section, "number_of_stages") == 1:
        return "number_of_stages is 1"
    sampled = name in ("second_stage_batch_size", "second_stage_balance_fraction")
    if sampled and "hard_example_miner" in section.entries:
        return "with a hard_example_miner nothing is sampled: the second stage trains on all first_stage_max_proposals"
    return ""


def _in_mask_head(name: str, section: MessageSection, value: Any, version: int) -> str:
    about_masks = name in (
        "mask_height", "mask_width", "mask_prediction_conv_depth", "mask_prediction_num_conv_layers",
        "masks_are_class_agnostic", "convolve_then_upsample_masks",
    )  # fmt: skip
    if about_masks and not _value(section, "predict_instance_masks"):
        return "predict_instance_masks is false"
    return _in_others(name, section, value, version)


def _in_others(name: str, section: MessageSection, value: Any, version: int) -> str:
    if name == "dropout_keep_probability" and not _value(section, "use_dropout"):
        return "use_dropout is false"
    if name == "moving_average_decay" and not _value(section, "use_moving_average"):
        return "use_moving_average is false"
    if name == "per_channel_pad_value" and not _value(section, "pad_to_max_dimension"):
        return "pad_to_max_dimension is false"
    return ""


def _value(section: MessageSection, name: str) -> Any:
    """What a single field of a section is, set or by default."""
    entry = section.entries.get(name)
    return entry.value if isinstance(entry, Leaf) else section.type.fields[name].default
