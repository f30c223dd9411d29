"""Reading what a user set: types, bounds, names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.memory.timeline import Builder, Timeline
from oomproof.sources.job import Progress, Setting, Settings
from oomproof.sources.settings import resolve


@dataclass(frozen=True)
class Job:
    name: str = "job"
    settings: tuple[Setting, ...] = (
        Setting("batch", 2, ""),
        Setting("boxes", 20, ""),
        Setting("image_size", (800, 1333), ""),
        Setting("scale", 1.5, ""),
        Setting("frozen", False, ""),
        Setting("precision", "fp32", "", ("fp32", "fp16")),
        Setting("backbone", "resnet", ""),
        Setting("trainable_layers", -1, ""),
        Setting("warmup", 0, ""),
        Setting("anything", None, ""),
    )

    def trace(self, settings: Settings, progress: Progress) -> Timeline:
        return Builder().build()


@pytest.mark.parametrize(
    ("name", "given", "read"),
    [
        ("batch", "8", 8),
        ("batch", " 8 ", 8),
        ("batch", 8, 8),
        ("batch", 8.0, 8),
        ("batch", "8.0", 8),
        ("boxes", "0", 0),
        ("workers", "0", 0),
        ("warmup", "0", 0),
        ("trainable_layers", "-1", -1),
        ("image_size", "640x480", (640, 480)),
        ("image_size", "640,480", (640, 480)),
        ("image_size", "640X480", (640, 480)),
        ("image_size", "640", (640, 640)),
        ("image_size", [640, 480], (640, 480)),
        ("image_size", 640, (640, 640)),
        ("scale", "2", 2.0),
        ("scale", "0", 0.0),
        ("scale", 0, 0.0),
        ("scale", "0.25", 0.25),
        ("scale", 0.25, 0.25),
        ("frozen", "on", True),
        ("frozen", "TRUE", True),
        ("frozen", "0", False),
        ("frozen", True, True),
        ("precision", "fp16", "fp16"),
        ("backbone", "swin", "swin"),
        ("anything", "{'a': 1}", {"a": 1}),
        ("anything", "0", 0),
        ("anything", "plain words", "plain words"),
    ],
)
def test_values(name: str, given: Any, read: Any) -> None:
    value = resolve(Job(), {name: given})[name]
    assert (value, type(value)) == (read, type(read))


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("batch", "0", "batch must be at least 1; got 0"),
        ("batch", -3, "batch must be at least 1; got -3"),
        ("batch", "2.5", "batch must be a whole number; got '2.5'"),
        ("batch", True, "batch must be a whole number; got 'True'"),
        ("batch", "two", "batch must be a number; got 'two'"),
        ("batch", "", "batch must be a number; got ''"),
        ("batch", "nan", "batch must be a finite number; got 'nan'"),
        ("batch", float("inf"), "batch must be a whole number; got 'inf'"),
        ("batch", None, "batch must be a whole number"),
        ("boxes", "-1", "boxes must be at least 0; got -1"),
        ("boxes", "2000000000", "boxes must be at most 10000; got 2000000000"),
        ("batch", 10**30, f"batch must be at most 65536; got {10**30}"),
        ("image_size", f"800x{10**30}", "image_size must be at most 32768"),
        ("trainable_layers", 10**30, "trainable_layers must be at most 2147483647"),
        ("workers", "-1", "workers must be at least 0"),
        ("trainable_layers", "-2", "trainable_layers must be at least -1"),
        ("image_size", "0x480", "image_size must be at least 1"),
        ("image_size", "640x-1", "image_size must be at least 1"),
        ("image_size", "1x2x3", "image_size must be 2 numbers such as 800x1333"),
        ("image_size", "wide", "image_size must be a number; got 'wide'"),
        ("image_size", "640xinf", "image_size must be a finite number; got 'inf'"),
        ("image_size", (640, "480"), "image_size must be 2 numbers"),
        ("image_size", (640, float("nan")), "image_size must be a whole number; got 'nan'"),
        ("image_size", "640.5x480", "image_size must be a whole number; got '640.5'"),
        ("scale", "inf", "scale must be a finite number"),
        ("scale", float("nan"), "scale must be a finite number"),
        ("scale", [1], "scale must be a number"),
        ("frozen", "maybe", "frozen must be true or false; got 'maybe'"),
        ("frozen", 3, "frozen must be true or false; got '3'"),
        ("precision", "fp8", "precision must be one of fp32, fp16; got 'fp8'"),
    ],
)
def test_values_that_are_refused(name: str, given: Any, said: str) -> None:
    with pytest.raises(InputError) as raised:
        resolve(Job(), {name: given})
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_every_setting_has_a_value() -> None:
    read = resolve(Job(), {"batch": 3})
    assert read["batch"] == 3 and read["image_size"] == (800, 1333)
    assert read["expandable_segments"] is False and read["prefetch_factor"] == 2  # of the run around it


def test_unknown_names() -> None:
    with pytest.raises(InputError, match=r"job has no setting 'image_sise'; did you mean image_size\?"):
        resolve(Job(), {"image_sise": 1})
    with pytest.raises(InputError, match=r"job has no setting 'zzz'.*It has batch, boxes"):
        resolve(Job(), {"zzz": 1})
