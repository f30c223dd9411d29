"""Damaged and hostile files: a config or one line, soon and in little memory; never a traceback."""

from __future__ import annotations

import random
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tfod_samples import MASK_RCNN, SSD, Drawn

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.config import config_of_text, recognise

SECONDS = 5
MEBIBYTES = 100
PIECES = [*"{}<>[]:,;\"'\\#\n\r-\x00é\ufeff\ud7ff", "0x", ".5", "inf"]


def read_or_refuse(text: str) -> None:
    recognise(text)
    try:
        config = config_of_text(text, "p.config")
    except InputError as error:
        assert "\n" not in str(error) and str(error).isprintable()
        assert len(str(error)) < 20_000
        return
    config.dead_fields()
    config.leaves()


def mutate(text: str, random: random.Random) -> str:
    for _ in range(random.randint(1, 6)):
        at, length = random.randrange(len(text) + 1), random.randint(1, 30)
        how = random.randrange(4)
        if how == 0:
            text = text[:at] + random.choice(PIECES) + text[at:]
        elif how == 1:
            text = text[:at] + text[at + length :]
        elif how == 2:
            start = random.randrange(len(text) + 1)
            text = text[:at] + text[start : start + length] + text[at:]
        else:
            text = text[:at]
    return text


@settings(deadline=None, max_examples=400)
@given(st.integers(0, 2**32))
def test_mutated_files(seed: int) -> None:
    drawn = Drawn(seed)
    text = drawn.random.choice([SSD, MASK_RCNN, drawn.config()[1]])
    read_or_refuse(mutate(text, drawn.random))


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    read_or_refuse(text)


LARGE = 4 << 20


@pytest.mark.parametrize(
    "text",
    [
        "a:1 " * (LARGE // 4),
        "x{}" * (LARGE // 3),
        "model{}" * (LARGE // 7),
        "model{ssd{}faster_rcnn{}}" * (LARGE // 25),
        "train_config{batch_size:1}" * (LARGE // 26),
        "train_config { freeze_variables: ['', " + "''," * (LARGE // 3 - 40) + "''] }",
        "train_config { fine_tune_checkpoint: " + "'' " * (LARGE // 3 - 40) + "}",
        "train_config { fine_tune_checkpoint: '" + "\\n" * (LARGE // 2 - 40) + "' }",
        "train_config { fine_tune_checkpoint: '" + "\\" * (LARGE - 60) + "' }",
        "train_config { batch_size: " + "9" * (LARGE - 60) + " }",
        "train_config { gradient_clipping_by_norm: 1e" + "9" * (LARGE - 60) + " }",
        "train_config { " + "x" * (LARGE - 60) + ": 1 }",
        "{" * LARGE,
        "model{" * (LARGE // 6),
        "[" * LARGE,
        "[a.b" * (LARGE // 4),
        '"' * LARGE,
        "#\n" * (LARGE // 2),
        " " * LARGE,
        "#" * LARGE,
        "\n" * (LARGE - 20) + "model { x: 1 }",
        "\n".join(f"field_{number} {{ }}" for number in range(19_000)),
    ],
    ids=range(22),
)
def test_hostile_files_take_little_time_and_memory(text: str) -> None:
    assert len(text) <= LARGE
    began = time.process_time()  # of this process alone, however busy the machine is
    read_or_refuse(text)
    assert time.process_time() - began < SECONDS
    tracemalloc.start()
    try:
        read_or_refuse(text[: LARGE // 8])
        assert tracemalloc.get_traced_memory()[1] < MEBIBYTES << 20
    finally:
        tracemalloc.stop()
