"""Configs in the shapes that people write them in, for tests: see samples/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from oomproof.sources.detectron2.config.schema import DEFAULTS

SAMPLES = Path(__file__).with_name("samples")
NAMES = ("instance.yaml", "child.yaml", "retinanet.yaml", "windows.yaml", "aliases.yaml")


def dumped(changed: dict[str, Any]) -> str:
    """Every key there is, as Detectron2 leaves it in OUTPUT_DIR/config.yaml: blocks throughout, keys sorted."""
    tree: dict[str, Any] = {}
    for key, value in {**DEFAULTS, **changed}.items():
        *sections, last = key.split(".")
        node = tree
        for section in sections:
            node = node.setdefault(section, {})
        node[last] = value
    return str(yaml.safe_dump(tree))
