"""``oomproof gpus``"""

from __future__ import annotations

import json
from collections.abc import Callable

Run = Callable[..., tuple[int, str, str]]


def test_lists_what_on_knows(run: Run) -> None:
    code, out, _ = run("gpus")
    assert code == 0
    assert len(out.splitlines()) > 60
    assert out.split()[:4] == ["GPU", "GiB", "architecture", "capability"]


def test_filter_by_name_and_architecture(run: Run) -> None:
    names = [row["name"] for row in json.loads(run("gpus", "3060", "--json")[1])]
    assert names and all("3060" in name for name in names)
    assert [row["name"] for row in json.loads(run("gpus", "3060ti", "--json")[1])] == ["RTX 3060 Ti"]
    assert {row["architecture"] for row in json.loads(run("gpus", "ada", "--json")[1])} == {"ada"}


def test_json_schema(run: Run) -> None:
    for row in json.loads(run("gpus", "--json")[1]):
        assert {name: type(value) for name, value in row.items()} == {
            "name": str,
            "total": int,
            "estimated": bool,
            "architecture": str,
            "capability": list,
        }


def test_every_name_listed_is_found(run: Run) -> None:
    from oomproof.memory.cards.devices import find_device

    for row in json.loads(run("gpus", "--json")[1]):
        assert find_device(row["name"]).name == row["name"]


def test_no_match_is_an_error(run: Run) -> None:
    code, out, err = run("gpus", "voodoo")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "voodoo" in err
