"""``--html``: the answer of a command as a page."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oomproof.errors import InputError

NEEDS_PLOTLY = "--html draws with Plotly, which is not installed: pip install 'oomproof[page]'"


def refuse_without_plotly() -> None:
    """Said before the trace or the search, not minutes later."""
    if importlib.util.find_spec("plotly") is None:
        raise InputError(NEEDS_PLOTLY)


def write_device(on: str, beside: str | None) -> str:
    """The options for a device of which something is held; empty where its name says all.

    >>> write_device("T4", None), write_device("", None), write_device("RTX 3060", "3GiB")
    ('', '--on this', "--on 'RTX 3060' --beside 3GiB")
    """
    here = on in ("", "this")
    if not here and beside is None:
        return ""
    return shlex.join(["--on", "this" if here else on, *(() if beside is None else ("--beside", beside))])


def write_html(path: Path, document: Mapping[str, Any]) -> None:
    """A page in place of what was there, whole or not at all."""
    from oomproof.files.replacing import new_content
    from oomproof.page.write_page import write_page

    page = write_page(document).encode()
    with new_content(path) as file:
        file.write(page)
