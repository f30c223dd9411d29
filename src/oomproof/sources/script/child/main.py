"""The first lines of the process in which a script is followed: finds oomproof, then runs the script.

Run by path, as ``python main.py FOLDER DESCRIPTOR``, with whichever Python the user's command names: oomproof itself
need not be installed there.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def _load_oomproof() -> None:
    sys.path.pop(0)  # this folder, whose files must not stand for modules of the script
    package = Path(__file__).resolve().parents[3]
    spec = importlib.util.spec_from_file_location(
        "oomproof", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["oomproof"] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    _load_oomproof()
    from oomproof.sources.script.child.follow import follow_script

    follow_script(Path(sys.argv[1]), int(sys.argv[2]))
