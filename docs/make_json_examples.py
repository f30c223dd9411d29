"""Writes the answers that docs/json.md shows, by running the commands it names.

python docs/make_json_examples.py
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("json.md")
ROOT = PAGE.parent.parent
WIDTH = 118

_EXAMPLE = re.compile(r"The answer to `(oomproof [^`]*)`([^`]|`(?!``))*?\n```json\n(?P<shown>.*?)\n```", re.DOTALL)
_FEW = {"attempts": 1, "alternatives": 2, "frontier": 2, "causes": 2, "frames": 2, "owners": 12}
"""rows of a list that are shown"""
_OF_A_FORECAST = ("verdict", "fits", "device")
"""shown of a forecast inside another answer"""
_CLOCK = ("seconds",)
"""what no two runs have in common"""


def write_examples() -> str:
    """The page with the answers of today; times of the clock stay as they are shown."""
    page = PAGE.read_text()
    for found in reversed(list(_EXAMPLE.finditer(page))):
        shown = json.loads(found["shown"])
        answer = shorten(_answer(" ".join(found[1].split())))
        answer.update({key: shown[key] for key in _CLOCK if key in answer and key in shown})
        begin, end = found.span("shown")
        page = page[:begin] + lay_out(answer) + page[end:]
    return page


def _answer(command: str) -> Any:
    arguments = [sys.executable, "-m", "oomproof", *shlex.split(command)[1:]]
    run = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 2):
        raise SystemExit(f"{command} ended with {run.returncode}: {run.stderr}")
    return json.loads(run.stdout)


def shorten(answer: Any, name: str = "") -> Any:
    """The answer with the first rows of long lists, the first words of long texts, and facts that are known."""
    if isinstance(answer, str):
        return answer if len(answer) < 150 else answer[:100].rsplit(" ", 1)[0] + " ..."
    if isinstance(answer, list):
        return [shorten(each) for each in answer[: _FEW.get(name)]]
    if not isinstance(answer, dict):
        return answer
    if name in ("before", "after"):
        return {key: answer[key] for key in _OF_A_FORECAST}
    if name == "facts":
        answer = {key: value for key, value in answer.items() if value not in (None, [], {})}
    return {key: shorten(value, key) for key, value in answer.items()}


def lay_out(value: Any, indent: int = 0, before: int = 0) -> str:
    """JSON in which whatever fits on a line stands on one."""
    line = json.dumps(value, ensure_ascii=False)
    if (indent and indent + before + len(line) < WIDTH) or not isinstance(value, dict | list) or not value:
        return line
    inner, space = indent + 2, " " * (indent + 2)
    if isinstance(value, dict):
        rows = [f"{space}{json.dumps(key)}: {lay_out(each, inner, len(key) + 5)}" for key, each in value.items()]
        opened, closed = "{", "}"
    else:
        rows = [space + lay_out(each, inner) for each in value]
        opened, closed = "[", "]"
    return f"{opened}\n" + ",\n".join(rows) + f"\n{' ' * indent}{closed}"


if __name__ == "__main__":
    PAGE.write_text(write_examples())
