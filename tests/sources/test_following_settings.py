"""Settings that are read in a way of their own, that follow others, and batches by any name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from oomproof.errors import InputError
from oomproof.memory.settings import Role, Settings
from oomproof.sources.job import Setting, find_roles
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
    assert resolved(Setting("SOLVER.IMS_PER_BATCH", 16, "", role="batch"), batch="8")["SOLVER.IMS_PER_BATCH"] == 8
    assert resolved(Setting("batch_size", 16, ""), Setting("batch", 2, ""), batch="8")["batch_size"] == 16
    with pytest.raises(InputError, match="no setting 'batch'"):
        resolved(Setting("side", 224, ""), batch="8")


def test_how_many_share_a_batch() -> None:
    roles: dict[Role, str] = {"batch": "IMAGES", "gpus": "gpus", "reference gpus": "WRITTEN_FOR"}
    assert Settings({}, roles).sharing == 1 and Settings({"gpus": 4}, roles).sharing == 4
    assert Settings({"gpus": 4, "WRITTEN_FOR": 8}, roles).sharing == 8
    assert Settings({"IMAGES": 16, "gpus": 4}, roles).name_of("batch") == "IMAGES"
    assert Settings({"side": 3}, roles).name_of("batch") == ""
    assert Settings({"side": 3}, roles).images == 1


def test_roles_stay_when_values_change() -> None:
    settings = Settings({"IMAGES": 16, "side": 8}, {"batch": "IMAGES"})
    assert settings.with_values({"IMAGES": 4}).images == 4
    assert settings.without("IMAGES").name_of("batch") == ""
    assert settings == {"IMAGES": 16, "side": 8}
    assert Settings(settings.with_values({"side": 9})).images == 16


def test_the_first_that_claims_a_role_plays_it() -> None:
    named = (Setting("batch_size", 2, "", role="batch"), Setting("batch", 4, ""))
    assert find_roles((*named, Setting("workers", 0, "", plays=False))) == {"batch": "batch_size"}
    assert find_roles((Setting("batch", 4, "", own=True),)) == {}, "a user's parameter means what the user means"
