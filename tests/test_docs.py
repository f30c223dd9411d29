"""docs/ as a site: it builds without a warning, every page has its place, and the reference is that of the code."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from thorough import THOROUGH

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "questions" / "keras" / "index.html").is_file()


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    listed = set()

    def collect(entries: list[object]) -> None:
        for entry in entries:
            assert isinstance(entry, dict)
            for place in entry.values():
                collect(place) if isinstance(place, list) else listed.add(place)

    collect(yaml.safe_load(text)["nav"])
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_that_of_the_code() -> None:
    module = script("make_reference")
    assert module.write_reference() == module.PAGE.read_text(), "python docs/make_reference.py"


@THOROUGH
def test_answers_in_json_are_those_of_today() -> None:
    module = script("make_json_examples")
    assert module.write_examples() == module.PAGE.read_text(), "python docs/make_json_examples.py"


def test_a_stale_answer_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("make_json_examples")
    page = tmp_path / "json.md"
    old = 'The answer to `oomproof fit JOB --on\n8GiB`, where:\n\n```json\n{"fits": %s, "seconds": 7}\n```\nafter'
    page.write_text(old % "false")
    asked = []

    def answer(command: str) -> dict[str, object]:
        asked.append(command)
        return {"fits": True, "seconds": 3, "facts": {"line": None}}

    monkeypatch.setattr(module, "PAGE", page)
    monkeypatch.setattr(module, "_answer", answer)
    written = module.write_examples()
    assert asked == ["oomproof fit JOB --on 8GiB"]
    assert '"fits": true,\n  "seconds": 7,\n  "facts": {}' in written and written.endswith("```\nafter")
