"""Small pipeline.configs in the API's style, and any config in any style, drawn from the schema."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from oomproof.sources.tf_object_detection.config.schema import ROOT, FieldType, MessageType

SSD = """\
# SSD with MobileNet v2, for TensorFlow 2
model {
  ssd {
    num_classes: 3
    image_resizer {
      fixed_shape_resizer {
        height: 300
        width: 300
      }
    }
    feature_extractor {
      type: "ssd_mobilenet_v2_keras"
      depth_multiplier: 1.0
    }
    anchor_generator {
      ssd_anchor_generator {
        num_layers: 6
        min_scale: 0.2
        aspect_ratios: 1.0
        aspect_ratios: 2.0
        aspect_ratios: 0.5
      }
    }
  }
}
train_config {
  batch_size: 24  # of all GPUs
  data_augmentation_options {
    random_horizontal_flip {
    }
  }
  optimizer {
    momentum_optimizer {
      learning_rate {
        cosine_decay_learning_rate {
          learning_rate_base: .08
          total_steps: 50000
        }
      }
    }
    use_moving_average: false
  }
  fine_tune_checkpoint_version: V2
}

train_input_reader {
  label_map_path: "labels.pbtxt"
  tf_record_input_reader {
    input_path: "train-?????-of-00100.record"
  }
}
eval_config {
  metrics_set: "coco_detection_metrics"
}
eval_input_reader {
  shuffle: false
  tf_record_input_reader {
    input_path: "val.record"
  }
}
"""

MASK_RCNN = """\
model {
  faster_rcnn {
    number_of_stages: 3
    num_classes: 90
    image_resizer { keep_aspect_ratio_resizer { min_dimension: 800 max_dimension: 1365 } }
    feature_extractor { type: 'faster_rcnn_inception_resnet_v2' first_stage_features_stride: 8 }
    first_stage_max_proposals: 300
    second_stage_batch_size: 64
    second_stage_box_predictor {
      mask_rcnn_box_predictor {
        use_dropout: false
        dropout_keep_probability: 1.0
        predict_instance_masks: true
        mask_height: 33
        mask_width: 33
      }
    }
  }
}
train_config: {
  batch_size: 1
  freeze_variables: "InceptionResnetV2/.*"
  batch_queue_capacity: 10
  load_all_detection_checkpoint_vars: true
}
train_input_reader: {
  tf_record_input_reader { input_path: "train.record" }
  load_instance_masks: true
  mask_type: PNG_MASKS
}
"""

_WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=6)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "bool": st.booleans(),
    "string": _WORDS,
}


@st.composite
def values_for(draw: st.DrawFn, field: FieldType, depth: int = 2) -> Any:
    """One value that a field may have: a number, a text, or a dictionary for a message."""
    if field.message is not None:
        return draw(messages(field.message, depth - 1))
    if field.enum:
        return draw(st.sampled_from(sorted(field.enum)))
    return draw(_VALUES[field.type])


@st.composite
def messages(draw: st.DrawFn, kind: MessageType = ROOT, depth: int = 4) -> dict[str, Any]:
    """A message as a dictionary, with at most one member of a oneof."""
    names = [name for name, each in kind.fields.items() if depth > 0 or each.message is None]
    chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=3)) if names else []
    made: dict[str, Any] = {}
    taken: set[str] = set()
    for name in chosen:
        field = kind.fields[name]
        if field.oneof in taken and field.oneof:
            continue
        taken.add(field.oneof)
        if field.is_repeated:
            made[name] = tuple(draw(st.lists(values_for(field, depth), min_size=1, max_size=3)))
        else:
            made[name] = draw(values_for(field, depth))
    return made


_BLANKS = st.sampled_from(["", "", " ", "\n", "\t", "\r\n  ", " # note: { } [ \" '\n", "\n\n# a comment\n"])
_SOME_BLANKS = st.sampled_from([" ", "\n", "\t ", "\r\n", " # more\n"])


@st.composite
def written(draw: st.DrawFn, message: dict[str, Any], kind: MessageType = ROOT) -> str:
    """A dictionary as text, every field in a style of its own; some say what a later field takes back."""
    parts: list[str] = []
    for name, value in message.items():
        field = kind.fields[name]
        if draw(st.integers(0, 5)) == 0:
            parts += draw(_taken_back(field, kind))
        if field.is_repeated and draw(st.booleans()):
            items = draw(_BLANKS).join(f"{draw(_item(field, each))}," for each in value)
            parts.append(f"{name}{draw(_BLANKS)}:{draw(_BLANKS)}[{items[:-1]}{draw(_BLANKS)}]")
            continue
        for each in value if field.is_repeated else (value,):
            colon = draw(st.sampled_from(["", ":"])) if field.message else ":"
            parts.append(f"{name}{draw(_BLANKS)}{colon}{draw(_BLANKS)}{draw(_item(field, each))}")
    ends = [draw(st.sampled_from(["", "", ",", ";"])) + draw(_SOME_BLANKS) for _ in parts]
    return draw(_BLANKS) + "".join(part + end for part, end in zip(parts, ends, strict=True))


@st.composite
def _taken_back(draw: st.DrawFn, field: FieldType, kind: MessageType) -> list[str]:
    """Fields that the next one makes void: itself, or another member of its oneof."""
    others = [each for each in kind.fields.values() if field.oneof and each.oneof == field.oneof and each != field]
    if others:
        other = draw(st.sampled_from(others))
        return [f"{other.name}:{draw(_item(other, draw(values_for(other, 1))))}"]
    if field.message is None and not field.is_repeated:
        return [f"{field.name}:{draw(_item(field, draw(values_for(field))))}"]
    return []


@st.composite
def _item(draw: st.DrawFn, field: FieldType, value: Any) -> str:
    if field.message is not None:
        inner = draw(written(value, field.message))
        return f"<{inner}>" if draw(st.booleans()) else f"{{{inner}}}"
    if field.type == "string":
        return draw(_BLANKS).join(draw(_texts(value)))
    if field.type == "bool":
        return draw(st.sampled_from(["true", "t", "True", "1"] if value else ["false", "f", "False", "0"]))
    if field.enum:
        return draw(st.sampled_from([value, str(field.enum[value])]))
    if field.type == "float":
        return draw(
            st.sampled_from([repr(value), f"{value!r}f" if value == value and abs(value) < 1e30 else repr(value)])
        )
    return draw(st.sampled_from([str(value), hex(value), oct(value).replace("0o", "0") if value else "0"]))


@st.composite
def _texts(draw: st.DrawFn, value: str) -> list[str]:
    """A text in one piece or two, in either quotes, characters escaped in several ways."""
    cut = draw(st.integers(0, len(value)))
    pieces = [value[:cut], value[cut:]] if draw(st.booleans()) else [value]
    made = []
    for piece in pieces:
        quote = draw(st.sampled_from(["'", '"']))
        plain = [each if each.isprintable() and each not in "\\'\"" else _octal(each) for each in piece]
        hidden = draw(st.booleans())
        made.append(quote + "".join(_octal(each) if hidden else plain[n] for n, each in enumerate(piece)) + quote)
    return made


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode())


@st.composite
def configs(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    """What a config says, and a text that says it."""
    message = draw(messages())
    return message, draw(written(message))
