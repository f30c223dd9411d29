"""One key of a config text is set: everything else stays, byte by byte."""

from __future__ import annotations

from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.sources.detectron2.config.values import decode
from oomproof.sources.detectron2.config.yaml_edit import format_value, write_value
from oomproof.sources.detectron2.config.yaml_file import parse


@pytest.mark.parametrize(
    ("text", "key", "value", "after"),
    [
        ("A:\n  B: 1  # why\n", "A.B", 2, "A:\n  B: 2  # why\n"),
        ("A:\n  B: '(1, 2)' # why\n", "A.B", (3,), "A:\n  B: '(3,)' # why\n"),
        ('A:\n  B: "x"\n', "A.B", "y", 'A:\n  B: "y"\n'),
        ("A:\n  B:\n  C: 1\n", "A.B", 3, "A:\n  B: 3\n  C: 1\n"),
        ("A:\n  B: [1,\n      2]  # two\n  C: 1", "A.B", [3], "A:\n  B: [3]  # two\n  C: 1"),
        ("A:\n  B: # why\n  - 1\n  - 2\n  # last\n  C: 1\n", "A.B", (3,), "A:\n  B: (3,) # why\n  # last\n  C: 1\n"),
        ("A:\n  B:\n  - 1\n  - 2 # two\n", "A.B", (3,), "A:\n  B: (3,)\n# two\n"),
        ("A:\n  B:\n  - 1\n  - 2", "A.B", [3], "A:\n  B: [3]"),
        ("A:\r\n  B:\r\n  - 1\r\n  C: 1\r\n", "A.B", [3], "A:\r\n  B: [3]\r\n  C: 1\r\n"),
        ("A: {B: 1, C: 2}\n", "A.B", (3, 4), "A: {B: [3, 4], C: 2}\n"),
        ("A: {B: 1, C: 2}\n", "A.D", 5, "A: {B: 1, C: 2, D: 5}\n"),
        ("A: {}\n", "A.D.E", True, "A: {D: {E: True}}\n"),
        ("A: {B: 1,\n    C: 2 }\n", "A.D", 5, "A: {B: 1,\n    C: 2, D: 5 }\n"),
        ("A:\n  B: 1\n\n# end\n", "A.C", 2, "A:\n  B: 1\n  C: 2\n\n# end\n"),
        ("A:\n    B: 1\n", "A.C.D", 2, "A:\n    B: 1\n    C:\n        D: 2\n"),
        ("A:\n  B: 1", "C.D", 2, "A:\n  B: 1\nC:\n  D: 2\n"),
        ("A:\r\n  B: 1", "C", 2, "A:\r\n  B: 1\r\nC: 2\r\n"),
        ("---\nA:\n  B: 1\n...\n", "A.C", 2, "---\nA:\n  B: 1\n  C: 2\n...\n"),
        ("A:\n  B: &x 1\n  C: *x\n", "A.C", 2, "A:\n  B: &x 1\n  C: 2\n"),
        ("A:\n  B: &x 1\n  C: *x\n", "A.B", 2, "A:\n  B: &x 2\n  C: *x\n"),
        ("X: &x\n  B: 1\nA:\n  <<: *x\n", "A.B", 2, "X: &x\n  B: 1\nA:\n  <<: *x\n  B: 2\n"),
        ("A:\n  B: !!python/tuple [1, 2]\n", "A.B", (3,), "A:\n  B: (3,)\n"),
        ("A:\n  B: >-\n    one\n    two\n\n  C: 1\n", "A.B", "x", 'A:\n  B: "x"\n\n  C: 1\n'),
        ("A:\n  B: 1\nA:\n  B: 2\n", "A.B", 3, "A:\n  B: 1\nA:\n  B: 3\n"),
        ("\ufeffA:\n  B: 1\n", "A.B", 2, "\ufeffA:\n  B: 2\n"),
        ("'A':\n  \"B\" : 1\n", "A.B", 2, "'A':\n  \"B\" : 2\n"),
        ("{A: {B: 1}}\n", "C.D", 2, "{A: {B: 1}, C: {D: 2}}\n"),
        ("A:\n  ä: ö  # ü\n  B: 1\n", "A.B", 2, "A:\n  ä: ö  # ü\n  B: 2\n"),
    ],
)
def test_only_the_value_changes(text: str, key: str, value: Any, after: str) -> None:
    changed = write_value(text, key, value)
    assert changed == after
    found = decode(parse(changed, "after").leaves[key])
    assert (list(found) if isinstance(value, tuple) else found) == (list(value) if isinstance(value, tuple) else value)


def test_a_section_that_is_an_alias_is_left_alone() -> None:
    with pytest.raises(InputError, match="alias"):
        write_value("X: &x\n  B: 1\nA: *x\n", "A.C", 2)


@pytest.mark.parametrize(
    "value", [0.01, 1e-05, 1e20, 3, True, (1,), (1, 2.5), [[16.0], [32]], "a: 'b' \"c\" # d", None]
)
def test_written_values_read_back(value: Any) -> None:
    assert decode(parse(f"A: {format_value(value)}\n", "text").leaves["A"]) == value
