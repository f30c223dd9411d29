"""Small pipeline.configs in the API's style, and any config in any style, drawn from the schema."""

from __future__ import annotations

import math
import random
from typing import Any

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

_CHARACTERS = "ab/. *{}[]#:'\"\\\n\t\r\x01é漢🙂"
_BLANKS = ["", "", " ", "\n", "\t", "\r\n  ", " # note: { } [ \" '\n", "\n\n# a comment\n"]
_SOME_BLANKS = [" ", "\n", "\t ", "\r\n", " # more\n"]
_NUMBERS = {
    "int32": (0, 1, -1, 7, 300, 2**31 - 1, -(2**31)),
    "uint32": (0, 1, 8, 300, 50000, 2**32 - 1),
    "float": (0.0, 1.0, 0.5, -2.25, 1e-08, 0.1, 0.07999999821186066, 3.0e38, math.inf, -math.inf),
    "bool": (True, False),
}


class Drawn:
    """A config drawn by chance, the same for the same seed: hypothesis gives seeds, which is quick."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def config(self) -> tuple[dict[str, Any], str]:
        """What a config says, and a text that says it."""
        message = self.message(ROOT, 5)
        return message, self.text(message, ROOT)

    def message(self, kind: MessageType, depth: int) -> dict[str, Any]:
        """A message as a dictionary, with at most one member of a oneof."""
        names = [name for name, each in kind.fields.items() if depth > 0 or each.message is None]
        made: dict[str, Any] = {}
        taken: set[str] = set()
        for name in self.random.sample(names, min(len(names), self.random.randint(0, 3))):
            field = kind.fields[name]
            if field.oneof and field.oneof in taken:
                continue
            taken.add(field.oneof)
            made[name] = self.list(field, 1, depth) if field.is_repeated else self.value(field, depth)
        return made

    def list(self, field: FieldType, least: int = 0, depth: int = 2) -> tuple[Any, ...]:
        return tuple(self.value(field, depth) for _ in range(self.random.randint(least, 3)))

    def value(self, field: FieldType, depth: int = 2) -> Any:
        """One value that a field may have: a number, a text, or a dictionary for a message."""
        if field.message is not None:
            return self.message(field.message, depth - 1)
        if field.type == "string":
            return "".join(self.random.choices(_CHARACTERS, k=self.random.randint(0, 5)))
        return self.random.choice(sorted(field.enum) if field.enum else _NUMBERS[field.type])

    def text(self, message: dict[str, Any], kind: MessageType) -> str:
        """A dictionary as text, every field in a style of its own; some say what a later field takes back."""
        parts: list[str] = []
        for name, value in message.items():
            field = kind.fields[name]
            if self.chance(0.2):
                parts += self.taken_back(field, kind)
            if field.is_repeated and self.chance(0.4):
                items = ",".join(f"{self.blank()}{self.item(field, each)}{self.blank()}" for each in value)
                parts.append(f"{name}{self.blank()}:{self.blank()}[{items}]")
                continue
            for each in value if field.is_repeated else (value,):
                colon = ":" if field.message is None or self.chance(0.3) else ""
                parts.append(f"{name}{self.blank()}{colon}{self.blank()}{self.item(field, each)}")
        ends = [self.random.choice(["", "", ",", ";"]) + self.random.choice(_SOME_BLANKS) for _ in parts]
        return self.blank() + "".join(part + end for part, end in zip(parts, ends, strict=True))

    def taken_back(self, field: FieldType, kind: MessageType) -> list[str]:
        """Fields that the next one makes void: itself, or another member of its oneof."""
        others = [name for name in kind.oneof_members(field.oneof) if name != field.name]
        if others:
            other = kind.fields[self.random.choice(others)]
            return [f"{other.name}:{self.item(other, self.value(other, 1))}"]
        if field.message is None and not field.is_repeated:
            return [f"{field.name}:{self.item(field, self.value(field))}"]
        return []

    def item(self, field: FieldType, value: Any) -> str:
        if field.message is not None:
            inner = self.text(value, field.message)
            return f"<{inner}>" if self.chance(0.3) else f"{{{inner}}}"
        if field.type == "string":
            return self.blank().join(self.quoted(value))
        if field.type == "bool":
            return self.random.choice(["true", "t", "True", "1"] if value else ["false", "f", "False", "0"])
        if field.enum:
            return str(self.random.choice([value, field.enum[value]]))
        if field.type == "float":
            return f"{value!r}f" if self.chance(0.3) and abs(value) < 1e30 else repr(value)
        octal = oct(value).replace("0o", "0") if value else "0"
        return self.random.choice([str(value), hex(value), octal])

    def quoted(self, value: str) -> list[str]:
        """A text in one piece or two, in either quotes, characters escaped or not."""
        cut = self.random.randint(0, len(value)) if self.chance(0.4) else None
        made = []
        for piece in [value] if cut is None else [value[:cut], value[cut:]]:
            quote, hidden = self.random.choice("'\""), self.chance(0.3)
            inner = [_octal(each) if hidden or each in "\\'\"\n\r\x01" else each for each in piece]
            made.append(f"{quote}{''.join(inner)}{quote}")
        return made

    def blank(self) -> str:
        return self.random.choice(_BLANKS)

    def chance(self, share: float) -> bool:
        return self.random.random() < share


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode())
