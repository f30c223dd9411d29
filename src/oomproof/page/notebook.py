"""In a notebook, answers show themselves as the page."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable, Mapping
from typing import Any

from oomproof.diagnosis.diagnosis import Diagnosis
from oomproof.errors import InputError
from oomproof.memory.forecast import Forecast
from oomproof.memory.sweep import Sweep
from oomproof.page.documents import check_document, explain_document, sweep_document
from oomproof.page.write_page import write_page
from oomproof.plan.plan import Plan

HEIGHT = 640


def show_in_notebooks() -> None:
    """Tells IPython, where it runs, how an answer looks. Costs nothing elsewhere."""
    running = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if running is not None:
        formatter = running.display_formatter.formatters["text/html"]
        for kind, document in _DOCUMENTS.items():
            formatter.for_type(kind, lambda answer, document=document: _frame(document(answer)))


_DOCUMENTS: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    Forecast: lambda forecast: check_document(forecast, ()),
    Plan: lambda plan: check_document(plan.after, (), plan=plan),
    Sweep: sweep_document,
    Diagnosis: explain_document,
}


def _frame(document: dict[str, Any]) -> str | None:
    """The page in a frame of its own: its style and script are not the notebook's. None, which leaves it at plain text,
    where Plotly is not installed."""
    try:
        page = html.escape(write_page(document))
    except InputError:
        return None
    return f'<iframe srcdoc="{page}" style="width:100%;height:{HEIGHT}px;border:0" title="oomproof"></iframe>'
