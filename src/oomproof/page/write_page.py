"""Puts a document into the page: one file, with everything in it."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from oomproof.errors import InputError

SCRIPTS = ("parts", "charts", "what_if", "answers", "start")
"""in the order in which the page runs them"""


def write_page(document: Mapping[str, Any]) -> str:
    """The HTML of a document. Names and paths in it are data: none can end the script that holds them."""
    folder = files("oomproof.page")
    # Later parts are not searched for the marks of earlier ones: a module may be called what it likes.
    parts = {
        "TITLE": html.escape(f"{document['title']}: oomproof"),
        "STYLE": (folder / "page.css").read_text("utf-8"),
        "PLOTLY": _plotly() if document["kind"] != "explain" else "",
        "DOCUMENT": json.dumps(document, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        "SCRIPT": "\n".join((folder / "script" / f"{name}.js").read_text("utf-8") for name in SCRIPTS),
    }
    pieces = (folder / "page.html").read_text("utf-8").split("%%")
    return "".join(parts.get(piece, piece) for piece in pieces)


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise InputError("--html draws with Plotly, which is not installed: pip install 'oomproof[page]'") from error
    return str(get_plotlyjs())
