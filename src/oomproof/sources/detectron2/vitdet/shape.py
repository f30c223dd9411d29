"""How large a vision transformer is, and which of its blocks see the whole image."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class VitShape:
    """The arguments of Detectron2's ``ViT`` that ViTDet's configs set."""

    width: int
    depth: int
    heads: int
    drop_path: float
    side: int = 1024
    """pixels of the square images that positions are made for"""
    patch: int = 16
    window: int = 14
    global_blocks: int = 4
    """blocks that attend to the whole image, the last of each equal part"""

    def is_global(self, block: int) -> bool:
        part = self.depth // self.global_blocks
        return block % part == part - 1
