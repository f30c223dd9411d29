"""``oomproof check`` on a saved step: exit codes, reports, sweeps, and what it writes where."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oomproof.cli import main

Run = Callable[..., Any]


def test_fits(run: Run, step: str) -> None:
    code, out, err = run("check", step, "--on", "8GiB")
    assert code == 0
    assert out.splitlines()[0].split()[:2] == ["Verdict", "fits"]
    assert "body.conv" in out
    assert err.startswith("opening ")


def test_does_not_fit(run: Run, step: str) -> None:
    code, out, _ = run("check", step, "--on", "2GiB", "--quiet")
    assert code == 2
    assert "does not fit" in out.splitlines()[0]


def test_host_ram_counts_where_it_is_given(run: Run, step: str) -> None:
    code, out, _ = run("check", step, "--on", "8GiB", "--ram", "2GiB", "--quiet")
    assert code == 2 and "does not fit the host: needs" in " ".join(out.split())
    assert run("check", step, "--on", "8GiB", "--ram", "32GiB", "--quiet")[0] == 0
    code, out, _ = run("check", step, "--on", "8GiB", "--ram", "2GiB", "--json")
    document = json.loads(out)
    assert code == 2 and document["ram"] == 2 << 30 and document["fits"] is False
    assert json.loads(run("check", step, "--on", "8GiB", "--json")[1])["ram"] is None
    code, out, _ = run("check", step, "--on", "8GiB", "--ram", "6GiB", "--sweep", "workers=0,8", "--quiet")
    assert code == 0 and out.count("does not fit") + out.count("at risk") == 1


def test_ram_that_cannot_be(run: Run, step: str) -> None:
    code, _, err = run("check", step, "--on", "8GiB", "--ram", "16", "--quiet")
    assert code == 1 and "ram must be a size with its unit, such as 16GiB" in err
    code, _, err = run("check", step, "--on", "8GiB", "--ram", "1GiB", "--quiet")
    assert code == 1 and "less than a training process takes by itself" in err


def test_json_is_all_there_is(run: Run, step: str) -> None:
    code, out, err = run("check", step, "--on", "8GiB", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["fits"] is True
    assert document["kinds"]["activation"] == 2 << 30
    assert err == ""


def test_quiet(run: Run, step: str) -> None:
    assert run("check", step, "--on", "8GiB", "--quiet").err == ""


def test_settings_are_listed(run: Run, step: str) -> None:
    code, out, _ = run("check", step, "--settings")
    assert code == 0
    assert "expandable_segments" in out
    names = [row["name"] for row in json.loads(run("check", step, "--settings", "--json").out)]
    assert "workers" in names


def test_set_reaches_the_forecast(run: Run, step: str) -> None:
    out = run("check", step, "--on", "8GiB", "--set", "workers=3", "--set", "workers=4", "--json").out
    assert json.loads(out)["settings"]["workers"] == 4


def test_save_and_check_again(run: Run, step: str, tmp_path: Path) -> None:
    again = tmp_path / "again.timeline"
    first = run("check", step, "--on", "8GiB", "--json", "--save", str(again)).out
    assert run("check", str(again), "--on", "8GiB", "--json").out == first


def test_sweep(run: Run, step: str) -> None:
    code, out, err = run("check", step, "--on", "8GiB", "--sweep", "workers=0..3")
    assert code == 0
    assert out.count("fits") >= 5
    assert "The largest workers that fits" in out
    assert "opening" in err
    document = json.loads(run("check", step, "--on", "8GiB", "--sweep", "workers=1,3", "--json").out)
    assert [row["value"] for row in document["rows"]] == [1, 3]
    assert document["largest"] == 3


def test_sweep_exit_code_when_nothing_fits(run: Run, step: str) -> None:
    assert run("check", step, "--on", "1GiB", "--sweep", "workers=0..1", "-q").code == 2


def test_interrupt_is_one_line(step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("oomproof.sources.open_job", interrupted)
    assert main(["check", step, "--on", "8GiB", "-q"]) == 130
    assert capsys.readouterr().err == "oomproof: interrupted\n"


def test_an_internal_error_is_a_report_to_copy(run: Run, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("oomproof.sources.open_job", broken)
    code, out, err = run("check", step, "--on", "8GiB", "-q")
    assert (code, out) == (1, "")
    first, *report = err.splitlines()
    assert first.startswith("oomproof: internal error: ZeroDivisionError: two lines; this is a fault of oomproof")
    assert any(re.fullmatch(r"  at oomproof/[\w/]+\.py:\d+ in \w+", line) for line in report)
    assert re.fullmatch(rf"  oomproof [\w.]+, Python {platform.python_version()}(, \w+ [\w.+]+)*", report[-1])
    with pytest.raises(ZeroDivisionError):
        main(["check", step, "--on", "8GiB", "-q", "--debug"])


def test_prints_of_user_code_stay_off_stdout(run: Run, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from oomproof import sources

    real = sources.open_job

    def chatty(text: str, *more: Any) -> object:
        print("loading my dataset")
        return real(text, *more)

    monkeypatch.setattr("oomproof.sources.open_job", chatty)
    _, out, err = run("check", step, "--on", "8GiB", "--json")
    assert json.loads(out)["fits"] is True
    assert "loading my dataset" in err
