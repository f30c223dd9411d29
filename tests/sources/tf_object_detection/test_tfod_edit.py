"""A value of a pipeline.config is set or removed: the file says exactly that, and all else stays, to the blank."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tfod_samples import MASK_RCNN, SSD, Drawn

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.config import Config, config_of_text
from oomproof.sources.tf_object_detection.config.paths import parse_path, walk
from oomproof.sources.tf_object_detection.config.reading import Leaf, plain_entry
from oomproof.sources.tf_object_detection.config.schema import ROOT, MessageType


def config(text: str) -> Config:
    return config_of_text(text, "pipeline.config")


@pytest.mark.parametrize(
    ("text", "path", "value", "after"),
    [
        # a value that is there
        (
            "train_config {\n  batch_size: 24  # all\n}\n",
            "train_config.batch_size",
            8,
            "train_config {\n  batch_size: 8  # all\n}\n",
        ),
        ("train_config{batch_size:0x18;}", "train_config.batch_size", 8, "train_config{batch_size:8;}"),
        ("train_config { batch_size: 8 }", "train_config.batch_size", 8, "train_config { batch_size: 8 }"),
        (
            "train_config { fine_tune_checkpoint: 'a' }",
            "train_config.fine_tune_checkpoint",
            "b'\"",
            "train_config { fine_tune_checkpoint: 'b\\'\"' }",
        ),
        (
            "train_config { fine_tune_checkpoint: 'a' # 1\n 'b' }",
            "train_config.fine_tune_checkpoint",
            "c",
            "train_config { fine_tune_checkpoint: 'c' }",
        ),
        (
            "train_config { batch_size: 1 batch_size: 2 }",
            "train_config.batch_size",
            3,
            "train_config { batch_size: 1 batch_size: 3 }",
        ),
        (
            "train_config { use_bfloat16: 1 }",
            "train_config.use_bfloat16",
            False,
            "train_config { use_bfloat16: false }",
        ),
        (
            "train_config { fine_tune_checkpoint_version: 1 }",
            "train_config.fine_tune_checkpoint_version",
            "V2",
            "train_config { fine_tune_checkpoint_version: V2 }",
        ),
        # a value that is not there: the file's own indentation, line ends, braces and separators
        (
            "train_config {\n    num_steps: 5 # five\n    # end\n}\n",
            "train_config.batch_size",
            8,
            "train_config {\n    num_steps: 5 # five\n    batch_size: 8\n    # end\n}\n",
        ),
        (
            "train_config {\r\n\tnum_steps: 5\r\n}\r\n",
            "train_config.batch_size",
            8,
            "train_config {\r\n\tnum_steps: 5\r\n\tbatch_size: 8\r\n}\r\n",
        ),
        (
            "train_config {\n  num_steps: 5,\n}\n",
            "train_config.batch_size",
            8,
            "train_config {\n  num_steps: 5,\n  batch_size: 8,\n}\n",
        ),
        (
            "train_config { num_steps: 5 }\n",
            "train_config.batch_size",
            8,
            "train_config { num_steps: 5 batch_size: 8 }\n",
        ),
        (
            "train_config { num_steps: 5; use_bfloat16: 1 }",
            "train_config.batch_size",
            8,
            "train_config { num_steps: 5; use_bfloat16: 1; batch_size: 8 }",
        ),
        ("train_config {}", "train_config.batch_size", 8, "train_config { batch_size: 8 }"),
        ("train_config < >", "train_config.batch_size", 8, "train_config < batch_size: 8 >"),
        ("train_config {\n}", "train_config.batch_size", 8, "train_config {\n  batch_size: 8\n}"),
        ("train_config { # empty\n}", "train_config.batch_size", 8, "train_config { # empty\n  batch_size: 8\n}"),
        ("", "train_config.batch_size", 8, "train_config {\n  batch_size: 8\n}\n"),
        ("# none", "train_config.batch_size", 8, "# none\ntrain_config {\n  batch_size: 8\n}\n"),
        ("model: <\n >", "train_config.batch_size", 8, "model: <\n >\ntrain_config: <\n  batch_size: 8\n>"),
        (
            "eval_config {\n   batch_size: 1\n}\n# end\n",
            "train_config.optimizer.use_moving_average",
            False,
            "eval_config {\n   batch_size: 1\n}\n"
            "train_config {\n   optimizer {\n      use_moving_average: false\n   }\n}\n# end\n",
        ),
        # oneofs are switched
        (
            "train_config { optimizer { momentum_optimizer { } use_moving_average: true } }",
            "train_config.optimizer.adam_optimizer.epsilon",
            0.5,
            "train_config { optimizer { adam_optimizer { epsilon: 0.5 } use_moving_average: true } }",
        ),
        (
            "train_config { optimizer { rms_prop_optimizer { decay: 1 } adam_optimizer { } } }",
            "train_config.optimizer.rms_prop_optimizer",
            {"epsilon": 2},
            "train_config { optimizer { rms_prop_optimizer { epsilon: 2.0 } } }",
        ),
        # repeated fields
        (
            "train_config {\n  freeze_variables: 'a'\n  freeze_variables: 'b'  # b\n  num_steps: 1\n}",
            "train_config.freeze_variables",
            ["a", "c", "d"],
            "train_config {\n  freeze_variables: 'a'\n  freeze_variables: 'c'  # b\n"
            '  freeze_variables: "d"\n  num_steps: 1\n}',
        ),
        (
            "train_config {\n  freeze_variables: 'a'\n  freeze_variables: 'b'  # b\n  num_steps: 1\n}",
            "train_config.freeze_variables",
            ["x"],
            "train_config {\n  freeze_variables: 'x'\n  num_steps: 1\n}",
        ),
        (
            "train_config { freeze_variables: ['a', 'b'] }",
            "train_config.freeze_variables",
            ["a", "b", "c"],
            "train_config { freeze_variables: ['a', 'b', \"c\"] }",
        ),
        (
            "train_config { freeze_variables: ['a', 'b', 'c'] }",
            "train_config.freeze_variables",
            ["z"],
            "train_config { freeze_variables: ['z'] }",
        ),
        (
            "train_config { freeze_variables: ['a', 'b'] num_steps: 1 }",
            "train_config.freeze_variables",
            [],
            "train_config { num_steps: 1 }",
        ),
        (
            "train_config { freeze_variables: ['a', 'b'] }",
            "train_config.freeze_variables[1]",
            "c",
            "train_config { freeze_variables: ['a', 'c'] }",
        ),
        (
            "train_config { freeze_variables: 'a' }",
            "train_config.freeze_variables[1]",
            "c",
            "train_config { freeze_variables: 'a' freeze_variables: \"c\" }",
        ),
        (
            "eval_input_reader {\n  shuffle: true\n}\n",
            "eval_input_reader[1].shuffle",
            False,
            "eval_input_reader {\n  shuffle: true\n}\neval_input_reader {\n  shuffle: false\n}\n",
        ),
        # whole messages
        (
            "model {\n  ssd {\n    num_classes: 3\n  }\n}\n",
            "model.ssd",
            {"num_classes": 4, "loss": {}},
            "model {\n  ssd {\n    num_classes: 4\n    loss {\n    }\n  }\n}\n",
        ),
        ("model: < ssd < num_classes: 3 > >", "model.ssd", {"num_classes": 4}, "model: < ssd < num_classes: 4 > >"),
    ],
)
def test_a_value_is_set(text: str, path: str, value: Any, after: str) -> None:
    changed = config(text).with_value(path, value)
    assert changed.text == after
    assert _same(changed.value(path), value)


def _same(found: Any, wanted: Any) -> bool:
    return bool(found == (tuple(wanted) if isinstance(wanted, list) else wanted))


@pytest.mark.parametrize(
    ("text", "path", "after"),
    [
        (
            "train_config {\n  # one\n  batch_size: 1  # two\n  num_steps: 2\n}",
            "train_config.batch_size",
            "train_config {\n  # one\n  num_steps: 2\n}",
        ),
        ("train_config { batch_size: 1 num_steps: 2 }", "train_config.batch_size", "train_config { num_steps: 2 }"),
        ("train_config { num_steps: 2, batch_size: 1 }", "train_config.batch_size", "train_config { num_steps: 2, }"),
        ("train_config { batch_size: 1 batch_size: 2 }", "train_config.batch_size", "train_config { }"),
        ("train_config { num_steps: 2 }", "train_config.batch_size", "train_config { num_steps: 2 }"),
        (
            "train_config { optimizer { rms_prop_optimizer { } adam_optimizer { } } }",
            "train_config.optimizer.adam_optimizer",
            "train_config { optimizer { } }",
        ),
        (
            "train_config { freeze_variables: ['a', 'b', 'c'] }",
            "train_config.freeze_variables[0]",
            "train_config { freeze_variables: ['b', 'c'] }",
        ),
        (
            "train_config { freeze_variables: ['a', 'b', 'c'] }",
            "train_config.freeze_variables[1]",
            "train_config { freeze_variables: ['a', 'c'] }",
        ),
        (
            "train_config { freeze_variables: 'a'\n freeze_variables: 'b' }",
            "train_config.freeze_variables",
            "train_config { \n }",
        ),
        ("model { }\ntrain_config {\n}\n", "train_config", "model { }\n"),
        ("model { }\ntrain_config { }", "train_config", "model { }\n"),
    ],
)
def test_a_value_is_removed(text: str, path: str, after: str) -> None:
    changed = config(text).without(path)
    assert changed.text == after
    assert not changed.is_set(path) or path.endswith("]")


def test_a_plan_changes_its_lines_and_no_other() -> None:
    plan = {
        "train_config.batch_size": 4,
        "model.ssd.image_resizer.keep_aspect_ratio_resizer.min_dimension": 600,
        "train_input_reader.max_number_of_boxes": 20,
        "train_input_reader.shuffle_buffer_size": 64,
        "train_config.optimizer.momentum_optimizer.learning_rate.cosine_decay_learning_rate.learning_rate_base": 0.01,
    }
    changed = config(SSD).with_values(plan)
    before, after = SSD.splitlines(), changed.text.splitlines()
    gone = [line.strip() for line in before if line not in after]
    new = [line.strip() for line in after if line not in before]
    assert gone == [
        "fixed_shape_resizer {",
        "height: 300",
        "width: 300",
        "batch_size: 24  # of all GPUs",
        "learning_rate_base: .08",
    ]
    assert new == [
        "keep_aspect_ratio_resizer {",
        "min_dimension: 600",
        "batch_size: 4  # of all GPUs",
        "learning_rate_base: 0.01",
        "max_number_of_boxes: 20",
        "shuffle_buffer_size: 64",
    ]
    assert {path: changed.value(path) for path in plan} == plan


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("train_config.batch_size", -1, "train_config.batch_size: expected a whole number of 0 or more, got -1"),
        ("train_config.batch_size", True, "expected a whole number of 0 or more, got True"),
        ("train_config.batch_size", 2.5, "expected a whole number"),
        (
            "train_config.batch_sise",
            2,
            "train_config.batch_sise does not exist: the API refuses the file; did you mean batch_size",
        ),
        ("train_config.batch_size.x", 2, "train_config.batch_size is a single value (uint32); it has no field x"),
        (
            "train_config.freeze_variables",
            "a",
            "train_config.freeze_variables is repeated: expected a list of values, got 'a'",
        ),
        ("train_config.freeze_variables[3]", "a", "freeze_variables has 0 item(s); the next would be [0]"),
        ("train_config.batch_size[0]", 2, "batch_size has one value; write it without an index"),
        (
            "eval_input_reader.shuffle",
            True,
            "eval_input_reader is repeated; write which one, such as eval_input_reader[0]",
        ),
        ("train_config.fine_tune_checkpoint_version", "V3", "expected one of UNKNOWN, V1, V2, got 'V3'"),
        ("train_config", 3, "expected a message of type TrainConfig in braces as a dictionary, got 3"),
        (
            "train_config.optimizer",
            {"adam_optimizer": {}, "rms_prop_optimizer": {}},
            "takes adam_optimizer or rms_prop_optimizer, not both",
        ),
        ("train config", 3, "'train config' is not the path of a field"),
        ("eval_input_reader[4].tf_record_input_reader.input_path[0]", "a", "the next would be [1]"),
        ("graph_rewriter.quantization.delay", None, "expected a whole number, got None"),
    ],
)
def test_what_cannot_be_set_is_said_in_one_line(path: str, value: Any, expected: str) -> None:
    with pytest.raises(InputError) as error:
        config(SSD).with_value(path, value)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


# -- any edit of any config --------------------------------------------------------------------------------------


def draw_edit(seed: int) -> tuple[dict[str, Any], str, str, Any]:
    """A config, and a path in it with a value to set: single values, items, lists and messages, there or not."""
    drawn = Drawn(seed)
    message, text = drawn.config()
    kind: MessageType = ROOT
    path = ""
    here: Any = message
    while kind.fields:
        known = [name for name in kind.fields if name in here]
        name = drawn.random.choice(known if known and drawn.chance(0.7) else sorted(kind.fields))
        field = kind.fields[name]
        path += ("." if path else "") + name
        here = here.get(name)
        if field.is_repeated and drawn.chance(0.5):
            return message, text, path, drawn.list(field)
        if field.is_repeated:
            index = drawn.random.randint(0, len(here or ()))
            path += f"[{index}]"
            here = here[index] if here and index < len(here) else None
        if field.message is None or drawn.chance(0.2):
            return message, text, path, drawn.value(field)
        kind, here = field.message, here or {}
    return message, text, path, {}


def edited(message: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The dictionary with the value at the path, as protobuf's messages would have it."""
    result = copy.deepcopy(message)
    here: Any = result
    kind: MessageType = ROOT
    parts = path.split(".")
    for number, part in enumerate(parts):
        name, _, index = part.rstrip("]").partition("[")
        field = kind.fields[name]
        for other in kind.oneof_members(field.oneof):
            if other != name:
                here.pop(other, None)
        last = number == len(parts) - 1
        if index:
            items = list(here.get(name, ()))
            items += [{}] * (int(index) == len(items))
            items[int(index)] = value if last else dict(items[int(index)])
            here[name] = tuple(items)
            here = items[int(index)]
        elif last and field.is_repeated and not value:
            here.pop(name, None)
        elif last:
            here[name] = value
        else:
            here = here.setdefault(name, {})
        kind = field.message or kind
    return result


@settings(deadline=None, max_examples=400)
@given(st.integers(0, 2**32))
def test_any_edit_gives_exactly_the_plan(seed: int) -> None:
    message, text, path, value = draw_edit(seed)
    before = config(text)
    assert plain_entry(before.reading.root) == message
    after = before.with_value(path, value)
    assert plain_entry(after.reading.root) == edited(message, path, value)
    assert after.with_value(path, value).text == after.text


@settings(deadline=None, max_examples=400)
@given(st.integers(0, 2**32))
def test_any_edit_leaves_the_rest_of_the_text(seed: int) -> None:
    _, text, path, value = draw_edit(seed)
    before = config(text)
    after = before.with_value(path, value)
    _, entry = walk(before.reading.root, parse_path(path))
    if isinstance(entry, Leaf):  # its own characters change, no other
        start, end = entry.at.start, entry.at.end
        assert after.text.startswith(text[:start]) and after.text.endswith(text[end:])
    elif entry is None and has_all(plain_entry(after.reading.root), plain_entry(before.reading.root)):
        # no oneof was switched: the new text lies between two halves of the old
        assert common(text, after.text) + common(text[::-1], after.text[::-1]) >= len(text)


@settings(deadline=None, max_examples=400)
@given(st.integers(0, 2**32))
def test_any_removal_removes_only_that(seed: int) -> None:
    _, text, path, _ = draw_edit(seed)
    before = config(text)
    after = before.without(path)
    expected = before.leaves()
    if not before.is_set(path):
        assert after.text == text
        return
    if not path.endswith("]"):
        gone = [each for each in expected if each == path or each.startswith((f"{path}.", f"{path}["))]
        assert after.leaves() == {each: value for each, value in expected.items() if each not in gone}
        assert not after.is_set(path)
        return
    whole = path.rpartition("[")[0]
    left = list(before.value(whole))
    del left[int(path.rpartition("[")[2][:-1])]
    assert after.value(whole) == tuple(left)


def has_all(new: Any, old: Any) -> bool:
    """Whether every field and item of one message is in another."""
    if isinstance(old, dict):
        return all(name in new and has_all(new[name], value) for name, value in old.items())
    if isinstance(old, tuple):
        return all(has_all(one, other) for one, other in zip(new, old, strict=False)) and len(new) >= len(old)
    return bool(new == old)


def common(one: str, other: str) -> int:
    """How many characters two texts begin with together."""
    short = min(len(one), len(other))
    return next((n for n in range(short) if one[n] != other[n]), short)


def test_samples_are_read_as_they_are() -> None:
    for text in (SSD, MASK_RCNN, ""):
        assert config(text).text == text
