"""Settings that are read in a way of their own, that follow others, and batches by any name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.sources.job import Setting, batch_name, sharing
from oomproof.sources.settings import resolve


@dataclass(frozen=True)
class Job:
    settings: tuple[Setting, ...]
    name: str = "job"


def resolved(*settings: Setting, **given: Any) -> dict[str, Any]:
    return resolve(Job(settings), given)  # type: ignore[arg-type]  # all that resolve needs of a job


def test_a_setting_follows_others_unless_it_is_given() -> None:
    gpus, ddp = Setting("gpus", 1, ""), Setting("ddp", False, "", follows=lambda values: values["gpus"] > 1)
    assert resolved(gpus, ddp)["ddp"] is False
    assert resolved(gpus, ddp, gpus="4")["ddp"] is True
    assert resolved(gpus, ddp, gpus="4", ddp="false")["ddp"] is False


def test_a_setting_may_be_read_in_its_own_way() -> None:
    sizes = Setting("sizes", (1, 2), "", read=lambda text: tuple(int(part) for part in str(text).split("/")))
    assert resolved(sizes, sizes="3/4/5")["sizes"] == (3, 4, 5)
    assert resolved(sizes)["sizes"] == (1, 2)


def test_batch_is_the_jobs_own_batch() -> None:
    assert resolved(Setting("SOLVER.IMS_PER_BATCH", 16, ""), batch="8")["SOLVER.IMS_PER_BATCH"] == 8
    assert resolved(Setting("batch_size", 16, ""), Setting("batch", 2, ""), batch="8")["batch_size"] == 16
    with pytest.raises(InputError, match="no setting 'batch'"):
        resolved(Setting("side", 224, ""), batch="8")


def test_how_many_share_a_batch() -> None:
    assert sharing({}) == 1 and sharing({"gpus": 4}) == 4
    assert sharing({"gpus": 4, "SOLVER.REFERENCE_WORLD_SIZE": 8}) == 8
    assert batch_name({"SOLVER.IMS_PER_BATCH": 16, "gpus": 4}) == "SOLVER.IMS_PER_BATCH"
    assert batch_name({"side": 3}) == ""
