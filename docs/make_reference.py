"""Writes docs/reference.md: every command with its options, and the settings of jobs, from the code itself.

python docs/make_reference.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer

from oomproof.cli import app
from oomproof.report.sizes import describe_setting
from oomproof.sources import open_job
from oomproof.sources.settings import settings_of

PAGE = Path(__file__).with_name("reference.md")
JOBS = {
    "a torchvision detector": "torchvision:ssd300_vgg16",
    "a torchvision classifier": "torchvision:resnet50",
    "a Detectron2 config": "COCO-Detection/retinanet_R_50_FPN_1x.yaml",
}
HEAD = """# Reference

Written by `python docs/make_reference.py` from the code; a test holds it to it. What the JSON answers hold is in
[json.md](json.md), what `fit` may change in [fit.md](fit.md).
"""


def write_reference() -> str:
    command = typer.main.get_command(app)
    commands = dict(sorted(command.commands.items()))  # type: ignore[attr-defined]  # a group has commands
    parts = [HEAD, *(_command(name, each) for name, each in commands.items())]
    parts += [_settings(title, job) for title, job in JOBS.items()]
    return "\n".join(parts)


def _command(name: str, command: Any) -> str:
    summary = " ".join((command.help or "").split("\b")[0].split("\n\n")[0].split())
    rows = ["| option | what it does |", "|---|---|"]
    for each in command.params:
        if getattr(each, "hidden", False) or each.name == "help":
            continue
        is_option = each.opts[0].startswith("-")
        spelled = ", ".join((*each.opts, *each.secondary_opts)) if is_option else each.metavar or each.name
        metavar = f" {each.metavar}" if is_option and each.metavar else ""
        rows.append(f"| `{_cell(spelled + metavar)}` | {_cell(each.help or '')} |")
    return f"## `oomproof {name}`\n\n{summary}\n\n" + "\n".join(rows) + "\n"


def _settings(title: str, job: str) -> str:
    rows = ["| setting | default | what it means |", "|---|---|---|"]
    for each in settings_of(open_job(job)):
        choices = f" ({', '.join(each.choices)})" if each.choices and len(each.choices) < 12 else ""
        rows.append(
            f"| `{each.name}` | {_cell(describe_setting(each.name, each.default))} | {_cell(each.help + choices)} |"
        )
    return f"## Settings of {title}\n\n`--set NAME=VALUE`; here of `{job}`.\n\n" + "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


if __name__ == "__main__":
    PAGE.write_text(write_reference(), encoding="utf-8")
