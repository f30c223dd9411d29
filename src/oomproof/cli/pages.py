"""``--html``: the answer of a command as a page."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oomproof.errors import InputError

NEEDS_PLOTLY = "--html draws with Plotly, which is not installed: pip install 'oomproof[page]'"


def refuse_without_plotly() -> None:
    """Said before the trace or the search, not minutes later."""
    if importlib.util.find_spec("plotly") is None:
        raise InputError(NEEDS_PLOTLY)


def write_html(path: Path, document: Mapping[str, Any]) -> None:
    """A page in place of what was there, whole or not at all."""
    from oomproof.files.replacing import new_content
    from oomproof.page.write_page import write_page

    page = write_page(document).encode()
    with new_content(path) as file:
        file.write(page)
