"""``oomproof gpus``: the GPUs that ``--on`` knows by name."""

from __future__ import annotations

from typing import Annotated

import typer

from oomproof.cli.screen import show, write
from oomproof.errors import InputError


def gpus(
    text: Annotated[
        str, typer.Argument(metavar="FILTER", help="Only those whose name or architecture contains it: 3060, ada.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout; memory in bytes.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """List the GPUs that --on knows by name.

    Memory as CUDA reports it (a little less than the size on the box), architecture, compute capability.

    \b
    Examples:
      oomproof gpus
      oomproof gpus ada
      oomproof gpus 3060 --json
    """
    from oomproof.memory.cards.devices import list_devices

    words = text.casefold().split()

    def fits(name: str) -> bool:
        return all(word in name or word in name.replace(" ", "") for word in words)  # as --on takes them: 3060ti

    found = [device for device in list_devices() if fits(f"{device.name} {device.architecture}".casefold())]
    if not found:
        raise InputError(
            f"no known GPU matches {text!r}; `oomproof gpus` lists them all, and --on takes a size too (8GiB)"
        )
    if as_json:
        from oomproof.report.as_json import gpus as document
        from oomproof.report.as_json import text as json_text

        write(json_text(document(found)))
    else:
        from oomproof.report.gpus import report

        show(report(found))
