"""Protobuf's own reader against ours: the same fields, the same values, the same files refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tfod_protobuf import merge, pipeline_message
from tfod_samples import MASK_RCNN, SSD, Drawn

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.config import config_of_text
from oomproof.sources.tf_object_detection.config.schema import ROOT, FieldType, MessageType, every_message

SHARED = Path(__file__).parents[4] / "shared" / "tfod_configs"
TYPES = {2: "float", 5: "int32", 8: "bool", 9: "string", 13: "uint32"}


def short(name: str) -> str:
    return name.removeprefix("object_detection.protos.")


def described(field: Any) -> FieldType:
    """A descriptor of protobuf as our own schema would say it."""
    kind = TYPES.get(field.type) or short((field.message_type or field.enum_type).full_name)
    enum = {each.name: each.number for each in field.enum_type.values} if field.enum_type else {}
    default = field.enum_type.values_by_number[field.default_value].name if field.enum_type else field.default_value
    many = field.is_repeated
    is_map = many and field.message_type is not None and field.message_type.GetOptions().map_entry
    return FieldType(
        field.name,
        kind,
        "map" if is_map else "repeated" if many else "",
        None if many or field.message_type else as_float32(default),
        field.containing_oneof.name if field.containing_oneof else "",
        bool(field.GetOptions().deprecated),
        "",
        enum,
    )


def as_float32(value: Any) -> Any:
    return struct.unpack("f", struct.pack("f", value))[0] if isinstance(value, float) else value


def test_the_schema_is_that_of_the_package() -> None:
    seen: set[str] = set()

    def compare(ours: MessageType, theirs: Any) -> None:
        if ours.name in seen:
            return
        seen.add(ours.name)
        assert short(theirs.full_name) == ours.name
        expected = {each.name: described(each) for each in theirs.fields}
        here = {
            name: FieldType(
                name,
                each.type,
                each.label,
                None if each.is_repeated else as_float32(each.default),
                each.oneof,
                each.deprecated,
                "",
                each.enum,
            )
            for name, each in ours.fields.items()
            if each.version != "newer"
        }
        assert here == expected
        for each in theirs.fields:
            if each.message_type:
                message = ours.fields[each.name].message
                assert message is not None
                compare(message, each.message_type)

    compare(ROOT, pipeline_message().DESCRIPTOR)
    assert seen == {each.name for each in every_message()}


def as_plain(message: Any) -> dict[str, Any]:
    """A message of protobuf as our own plain values."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.is_repeated and field.message_type and field.message_type.GetOptions().map_entry:
            found[field.name] = {
                key: as_plain(each) if hasattr(each, "ListFields") else each for key, each in value.items()
            }
        elif field.is_repeated:
            found[field.name] = tuple(as_single(field, each) for each in value)
        else:
            found[field.name] = as_single(field, value)
    return found


def as_single(field: Any, value: Any) -> Any:
    if field.message_type:
        return as_plain(value)
    return field.enum_type.values_by_number[value].name if field.enum_type else value


def as_theirs(value: Any, kind: MessageType = ROOT) -> Any:
    """Our own plain values as protobuf keeps them: 32-bit numbers, and dictionaries for maps."""
    made: dict[str, Any] = {}
    for name, each in value.items():
        field = kind.fields[name]
        items = (
            [as_theirs(one, field.message) if field.message else as_float32(one) for one in each] if field.label else []
        )
        if field.label == "map":
            assert field.message is not None
            default = field.message.fields["value"].default
            empty = {} if field.message.fields["value"].message else default
            key = field.message.fields["key"].default
            made[name] = {one.get("key", key): one.get("value", empty) for one in items}
        elif field.label:
            made[name] = tuple(items)
        else:
            made[name] = as_theirs(each, field.message) if field.message else as_float32(each)
    return made


def assert_agree(text: str) -> None:
    from google.protobuf import text_format

    pipeline_message()
    try:
        theirs = merge(text)
    except text_format.ParseError:
        with pytest.raises(InputError):
            config_of_text(text, "pipeline.config")
        return
    ours = {name: config_of_text(text, "pipeline.config").value(name) for name in ROOT.fields}
    ours = {name: value for name, value in ours.items() if value is not None and value != ()}
    assert as_theirs(ours) == as_plain(theirs)


@pytest.mark.parametrize("text", [SSD, MASK_RCNN, ""])
def test_samples_mean_the_same(text: str) -> None:
    assert_agree(text)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32))
def test_any_config_means_the_same(seed: int) -> None:
    _, text = Drawn(seed).config()
    if not any(word in text for word in ("feature_consistency", "use_hardswish", "use_native_resize_op")):
        assert_agree(text)  # those are newer than the package


@pytest.mark.filterwarnings("ignore:invalid .*escape sequence:DeprecationWarning")  # Python's own
@pytest.mark.parametrize(
    "text",
    [
        "train_config { batch_size: 1 batch_size: 2 }",
        "train_config { batch_size: 1 } train_config { num_steps: 2 }",
        "train_config { optimizer { adam_optimizer { } momentum_optimizer { } adam_optimizer { epsilon: 1 } } }",
        "model { ssd { num_classes: 0x10 } }",
        "model { ssd { num_classes: 010 } }",
        "model { ssd { num_classes: -1 } }",
        "model { ssd { num_classes: - 1 } }",
        "model { ssd { num_classes: 1.0 } }",
        "model { ssd { num_classes: 4294967296 } }",
        "model { ssd { num_classes 1 } }",
        "model { ssd { num_classes: [1] } }",
        "model ssd",
        "model: ssd",
        "train_config { batch_size: -1 }",
        "train_config { batch_size: 1,, num_steps: 3 }",
        "train_config { batch_size: 1;num_steps: 3, }",
        "train_config { gradient_clipping_by_norm: inf }",
        "train_config { gradient_clipping_by_norm: -Infinity }",
        "train_config { gradient_clipping_by_norm: 1e50 }",
        "train_config { gradient_clipping_by_norm: 1.5f }",
        "train_config { gradient_clipping_by_norm: 007 }",
        "train_config { gradient_clipping_by_norm: .5 }",
        "train_config { gradient_clipping_by_norm: +5 }",
        "train_config { gradient_clipping_by_norm: 1_000 }",
        "train_config { gradient_clipping_by_norm: 0x10 }",
        "train_config { fine_tune_checkpoint: 'a' \"b\" # c\n 'd' }",
        r"train_config { fine_tune_checkpoint: '\x41\102\n\'\q\u00e9' }",
        r"train_config { fine_tune_checkpoint: '\377' }",
        r"train_config { fine_tune_checkpoint: '\777' }",
        r"train_config { fine_tune_checkpoint: '\x' }",
        "train_config { fine_tune_checkpoint: 'a\n' }",
        "train_config { fine_tune_checkpoint: a }",
        "train_config { fine_tune_checkpoint_version: V2 }",
        "train_config { fine_tune_checkpoint_version: 2 }",
        "train_config { fine_tune_checkpoint_version: 7 }",
        "train_config { fine_tune_checkpoint_version: v2 }",
        "train_config { use_bfloat16: 1 sync_replicas: f }",
        "train_config { use_bfloat16: TRUE }",
        "train_config { freeze_variables: ['a', 'b' 'c'] freeze_variables: 'd' freeze_variables: [] }",
        "train_config { freeze_variables: ['a',] }",
        "train_config { freeze_variables ['a'] }",
        "train_config { data_augmentation_options [{ }, < random_horizontal_flip: { } >] }",
        "train_config < batch_size: 1 }",
        "train_config { batch_size: 1",
        "train_config { batch_size: 1 } }",
        "train_config { batch_sise: 1 }",
        "train_config { [some.extension]: 1 }",
        "[some.extension] { a: 1 }",
        "1: 2",
        "eval_config { super_categories { key: 'a' value: 'b' } super_categories { key: 'a' value: 'c' } }",
        "eval_config { super_categories { key: 'a' } }",
        "\ufeffmodel { }",
        "model { } # the end",
        "model { }\x00",
    ],
)
def test_edges_are_read_or_refused_alike(text: str) -> None:
    assert_agree(text)


def test_the_published_configs_mean_the_same() -> None:
    files = sorted(SHARED.glob("*/*.config"))
    if not files:
        pytest.skip("../shared/tfod_configs, with configs that the API publishes, is not here")
    for file in files:
        assert_agree(file.read_text())
