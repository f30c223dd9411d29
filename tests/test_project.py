"""The project as a whole: what may import what, what every folder says of itself, what must never be in a file."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "oomproof"
SOURCES = sorted(PACKAGE.rglob("*.py"))
FRAMEWORKS = {"torch", "torchvision", "timm", "tensorflow", "keras", "jax", "ultralytics", "transformers", "detectron2"}
MAY_KNOW_FRAMEWORKS = {"trace", "sources", "changes", "frameworks", "data", "run"}
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:work|root|opt)/\w")

ROW = re.compile(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)
TABLE = dict(ROW.findall((ROOT / "ARCHITECTURE.md").read_text()))
MAY_IMPORT = {
    folder: {folder, *re.findall(r"`([\w.]+)`", allowed)}
    for folder, allowed in TABLE.items()
    if not allowed.startswith("everything")
}
"""what a folder may import of oomproof, as ARCHITECTURE.md says"""
KEYS = re.compile(
    r"SOLVER\.|DATALOADER|INPUT\.M|MODEL\.[A-Z]|IMS_PER_BATCH|roi_heads|proposal_generator|jit_compile"
    r"|keras\.|batch_size|train_config|imgsz"
)
"""names that belong to one framework or one source"""

IRREGULAR = re.compile(
    r"begun|bent|born|bound|broken|brought|built|bought|caught|chosen|dealt|done|drawn|driven|dug|fallen|fed|"
    r"felt|flown|forgotten|found|frozen|given|gone|got|grown|heard|held|hidden|hung|kept|known|laid|learnt|led|"
    r"left|lent|lost|made|meant|met|overridden|overwritten|paid|proven|rebuilt|rewritten|risen|said|seen|sent|"
    r"shaken|shown|shrunk|sold|sought|spent|spoken|stolen|stood|struck|stuck|sunk|swept|taken|taught|thrown|"
    r"told|torn|understood|undone|unheard|unknown|unseen|untold|withdrawn|won|worn|wound|written"
)
"""participles that look like no verb's plain form; «read», «put» or «split» may be a command"""
PLAIN_VERBS = re.compile(r"bleed|breed|embed|exceed|feed|need|proceed|seed|shed|speed|succeed|weed")
"""end in -ed, and are no participles"""


def imports(tree: ast.AST, everywhere: bool) -> Iterator[str]:
    """Modules that are imported: at module level (under TYPE_CHECKING too), or everywhere."""
    for node in ast.walk(tree) if everywhere else _at_module_level(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that a reader can search for them"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from names if node.module == "oomproof" else [str(node.module)]


def _at_module_level(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield node
            yield from _at_module_level(node)


def folder_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def named(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_frameworks_stay_at_the_edge() -> None:
    used = {
        named(path): {name.split(".")[0] for name in imports(ast.parse(path.read_text()), everywhere=True)} & FRAMEWORKS
        for path in SOURCES
        if folder_of(path) not in MAY_KNOW_FRAMEWORKS
    }
    assert not {path: names for path, names in used.items() if names}


def test_imports_go_one_way() -> None:
    wrong = [
        f"{named(path)} imports {name}"
        for path in SOURCES
        if folder_of(path) in MAY_IMPORT
        for name in imports(ast.parse(path.read_text()), everywhere=True)
        if name.startswith("oomproof.") and not _is_within(name.removeprefix("oomproof."), MAY_IMPORT[folder_of(path)])
    ]
    assert not wrong


def test_the_table_of_imports_has_every_folder() -> None:
    folders = {folder_of(path).removesuffix(".py") for path in SOURCES} - {"__init__", "__main__"}
    assert set(TABLE) == folders
    assert not {path.name for path in SOURCES if folder_of(path) == "api" and "oomproof.cli" in path.read_text()}


def test_what_is_common_knows_no_key_of_one_framework() -> None:
    """Texts in the code of these folders; examples in docstrings may name what they like."""
    found = [
        f"{named(path)}:{node.lineno}: {node.value!r:.80}"
        for path in SOURCES
        if folder_of(path) in ("plan", "report", "memory", "api")
        for node in _texts(ast.parse(path.read_text()))
        if KEYS.search(node.value)
    ]
    assert not found


def _texts(tree: ast.AST) -> Iterator[ast.Constant]:
    """Text constants that are not docstrings or remarks below a name."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node


def _is_within(name: str, allowed: set[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in allowed)


def test_memory_needs_no_more_than_numpy() -> None:
    allowed = {"numpy", "psutil", "pynvml", "oomproof"}  # psutil and NVML: what this machine holds now
    for path in (PACKAGE / "memory").rglob("*.py"):
        used = {name.split(".")[0] for name in imports(ast.parse(path.read_text()), everywhere=True)}
        assert used - sys.stdlib_module_names <= allowed, named(path)


def test_a_source_is_opened_without_a_framework() -> None:
    """sources/ may name frameworks, but what every command imports of it must not load one."""
    for name in ("__init__", "job", "saved/job", "python/job"):
        tree = ast.parse((PACKAGE / "sources" / f"{name}.py").read_text())
        assert not {module.split(".")[0] for module in imports(tree, everywhere=False)} & FRAMEWORKS, name


def test_every_folder_and_file_says_what_it_is() -> None:
    for path in SOURCES:
        text = ast.get_docstring(ast.parse(path.read_text()))
        assert text or path.name == "__main__.py", named(path)
    for folder in {path.parent for path in SOURCES}:
        assert (folder / "__init__.py").is_file(), folder


def test_make_has_its_targets() -> None:
    text = (ROOT / "Makefile").read_text()
    for target in ("demo", "test", "test-all", "lint", "bench", "clean"):
        assert re.search(rf"^{target}:", text, re.MULTILINE), target
    assert {"make test", "make test-all"} <= set((ROOT / ".ci" / "run").read_text().splitlines())
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_every_dependency_is_pinned() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][\w.]*", line) for line in lines)
    pinned = {_normal(line.split("==")[0]) for line in lines}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    names = {_normal(re.split(r"[\[<>=~! ]", each)[0]) for each in wanted} - {"oomproof"}
    assert names <= pinned


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_no_file_speaks_of_one_machine() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git clone: the tracked files are not known")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.split("\0"):
        path = ROOT / name
        if name and path.is_file() and path != Path(__file__):
            found = MACHINE_PATHS.findall(path.read_text(errors="ignore"))
            assert not found, f"{name}: {found}"


def test_documents_link_to_files_that_exist() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name} -> {link}"


def test_every_python_file_of_the_tests_has_a_name_of_its_own() -> None:
    """They import each other by name, so two of one name hide each other, and pytest collects neither."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name not in ("conftest.py", "__init__.py")]
    assert not {name for name in names if names.count(name) > 1}


SAME_FOR_EACH = {"Config": "of a framework's own file", "Guard": "for a framework's own loop"}
"""names that several classes share because they mean the same, each in its own framework"""


def test_a_class_has_a_name_of_its_own() -> None:
    """One name, one meaning; what a file keeps to itself may be called as it likes."""
    names = [
        node.name
        for path in SOURCES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert {name for name in names if names.count(name) > 1} == set(SAME_FOR_EACH)


def test_functions_are_named_by_verbs() -> None:
    """``made`` or ``_joined`` says nothing of what is done to what; properties are values and may be called so."""
    bare = [
        f"{named(path)}:{function.lineno}: {function.name}"
        for path in SOURCES
        for function, inside in _functions(ast.parse(path.read_text()))
        if _is_participle(function.name.strip("_")) and not _is_property(function) and not _may_override(inside)
    ]
    assert not bare, "call them by what they do, as in describe_change, or is_known where they answer a question"


def test_what_counts_as_a_participle() -> None:
    assert all(map(_is_participle, ("made", "told", "joined", "rescaled", "unknown")))
    assert not any(map(_is_participle, ("read", "need", "exceed", "make_forecast", "samplers_filled", "allow")))


def _functions(
    tree: ast.AST, inside: ast.ClassDef | None = None
) -> Iterator[tuple[ast.FunctionDef, ast.ClassDef | None]]:
    """Every function, nested ones too, and the class that it is a method of."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node, inside
        below = node if isinstance(node, ast.ClassDef) else None if isinstance(node, ast.FunctionDef) else inside
        yield from _functions(node, below)


def _is_participle(name: str) -> bool:
    regular = re.fullmatch(r"[a-z]{2,}ed", name) and not PLAIN_VERBS.fullmatch(name)
    return bool(regular or IRREGULAR.fullmatch(name))


def _is_property(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(each).endswith("property") for each in function.decorator_list)


def _may_override(inside: ast.ClassDef | None) -> bool:
    """A method's name is not ours to choose where a framework's base class may have it."""
    bases = [] if inside is None else [ast.unparse(base) for base in inside.bases]
    return any(
        base.split(".")[0] in FRAMEWORKS | {"nn"} or base in ("Callback", "Module", "Optimizer") for base in bases
    )
