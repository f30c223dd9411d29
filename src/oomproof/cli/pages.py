"""``--html``: the answer of a command as a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_html(path: Path, document: Mapping[str, Any]) -> None:
    """A page in place of what was there, whole or not at all."""
    from oomproof.files.replacing import new_content
    from oomproof.page.write_page import write_page

    page = write_page(document).encode()
    with new_content(path) as file:
        file.write(page)
