"""Files and texts of a script: which file a name stands for, and what the script has itself written into which file."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path, PurePosixPath

from oomproof.files.looking import is_file
from oomproof.sources.tf_object_detection.config.config import config_of_text
from oomproof.sources.tf_object_detection.config.text_file import read_text
from oomproof.sources.tf_object_detection.script.config_so_far import ConfigNode, Tracked
from oomproof.sources.tf_object_detection.script.folding import read_dotted_name
from oomproof.sources.tf_object_detection.script.known_values import ScriptConstants

_OPENERS = ("open", "GFile", "Open", "FastGFile")
_WRITING = set("wax+")
_PARAMETERS = ("name", "file", "filename", "mode")


class ScriptTexts:
    def __init__(self, path: Path, constants: ScriptConstants) -> None:
        self.path, self.constants = path, constants
        self.files: dict[str, str | None] = {}
        """names that stand for an open file or its text, and which file; None where that is not known"""
        self.of_configs: dict[str, Tracked] = {}
        """names that stand for a config as text, and the config as it was"""
        self.rewritten = ""
        """where a program of the system changes files in place"""
        self.written: dict[str, Tracked | str] = {}
        """files that the script writes: the config in them, or where they are written with something else"""

    def is_file(self, value: ast.expr) -> bool:
        """Whether an expression is an open file, or the text of one."""
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr == "read":
                return self.is_file(value.func.value)
            if value.func.attr == "read_text":
                return self.constants.evaluate(value.func.value)[0]
        if isinstance(value, ast.Call):
            return read_dotted_name(value.func).rpartition(".")[2] in _OPENERS
        return read_dotted_name(value) in self.files

    def file_of(self, value: ast.expr) -> str | None:
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "read":
            return self.file_of(value.func.value)
        if isinstance(value, ast.Call):
            if isinstance(value.func, ast.Attribute) and value.func.attr in ("open", "read_text", "write_text"):
                known, name = self.constants.evaluate(value.func.value)  # of a pathlib.Path
                if known:
                    return str(name)
            given = [*value.args, *(each.value for each in value.keywords if each.arg in _PARAMETERS[:3])]
            known, name = self.constants.evaluate(given[0]) if given else (False, None)
            return str(name) if known else None
        return self.files.get(read_dotted_name(value))

    def note_opened(self, call: ast.Call, at: str) -> None:
        """A file that is opened to be written holds something else from here on."""
        of_path = self.constants.evaluate(call.func.value)[0] if isinstance(call.func, ast.Attribute) else False
        modes = [*call.args[0 if of_path else 1 :][:1], *(each.value for each in call.keywords if each.arg == "mode")]
        mode = self.constants.evaluate(modes[0])[1] if modes else "r"
        name = self.file_of(call) if self.is_file(call) else None
        if name is not None and set(str(mode)) & _WRITING:
            self.written[_plain(name)] = at

    def note_written(self, file: str | None, content: Tracked | None, at: str) -> None:
        if file is not None:
            self.written[_plain(file)] = content or at

    def note_copied(self, source: ast.expr, target: ast.expr) -> None:
        """What the script has written goes into another file."""
        (known, before), (as_well, after) = self.constants.evaluate(source), self.constants.evaluate(target)
        if known and as_well and _plain(str(before)) in self.written:
            content = self.written[_plain(str(before))]
            for name in (str(after), f"{after}/{PurePosixPath(str(before)).name}"):
                self.written[_plain(name)] = content

    def merge_text(self, node: ConfigNode, source: ast.expr, at: str) -> None:
        """``text_format.Merge(source, node)``"""
        made = self.of_configs.get(read_dotted_name(source))
        known, text = self.constants.evaluate(source)
        if made is not None and not node.path:
            _add(node.of, made)
        elif known and isinstance(text, str) and "[" not in node.path:
            parts = [part for part in node.path.split(".") if part]
            _add_text(node.of, f"{''.join(f'{part} {{ ' for part in parts)}{text}\n{'} ' * len(parts)}")
        elif not (known and text is None):
            node.of.lose(f"{at}: the text {ast.unparse(source)} is not known before the script runs")

    def merge_file(self, node: ConfigNode, name: str | None, at: str) -> None:
        before = None if name is None else self.written.get(_plain(name))
        if self.rewritten and before is None:
            node.of.lose(f"{self.rewritten}: files are changed here, which is not known before the script runs")
            return
        if isinstance(before, Tracked):
            if not node.path:
                _add(node.of, before)
            return
        if before is not None:
            node.of.lose(f"{at}: {name} holds what the script has written into it ({before}), which is not known here")
            return
        # A script is started from its own folder, or from the one above that its paths begin with.
        places = [] if name is None else [self.path.parent / name, Path(name)]
        file = next((each for each in places if is_file(each)), None)
        if file is None:
            what = "which file is read" if name is None else f"{name}, which is read,"
            node.of.lost = f"{at}: {what} is not known here"
            node.of.notes.append(f"{node.of.lost}: its fields are taken by their defaults")
            return
        if not node.path:
            text = f"{node.of.config.text}\n" if node.of.config.text else ""
            node.of.config = config_of_text(text + read_text(file), str(file), file)


def copy_of(tracked: Tracked) -> Tracked:
    """A config of its own, which is as another one is now."""
    return replace(
        tracked, notes=[], mistakes=[], open=dict(tracked.open), is_changed=False, trained_at="",
        is_written=False, written_as=None,
    )  # fmt: skip


def _add(tracked: Tracked, more: Tracked) -> None:
    if tracked.config.text:
        _add_text(tracked, more.config.text)
    else:
        tracked.config = more.config
    tracked.open.update(more.open)
    tracked.lost = tracked.lost or more.lost


def _add_text(tracked: Tracked, text: str) -> None:
    before = tracked.config  # a text behind another is read as the two merged
    tracked.config = config_of_text(f"{before.text}\n{text}", before.name, before.path)


def _plain(name: str) -> str:
    return str(PurePosixPath(name))
