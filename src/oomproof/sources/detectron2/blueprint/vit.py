"""The plain vision transformer of ViTDet: most blocks attend within windows, a few to the whole image.

Attention is computed step by step, with its table of scores, because positions are added to the table: no fused kernel
takes part. Names live as long as they do in Detectron2, since that decides what is alive beside the largest tables.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from oomproof.sources.detectron2.blueprint.layers import Feature
from oomproof.sources.detectron2.vitdet.shape import VitShape

_PRETRAINED_SIDE = 224
"""pixels of the images of the pretraining, whose table of positions is stretched to larger ones"""


class PatchEmbed(nn.Module):
    def __init__(self, shape: VitShape) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, shape.width, shape.patch, stride=shape.patch)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """images x height x width x channels, as all that follows"""
        return self.proj(x).permute(0, 2, 3, 1)


class Attention(nn.Module):
    """Attention with a learned vector for each distance of rows and of columns. ``side``: of the map, in tokens."""

    def __init__(self, width: int, heads: int, side: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.rel_pos_h = nn.Parameter(torch.zeros(2 * side - 1, width // heads))
        self.rel_pos_w = nn.Parameter(torch.zeros(2 * side - 1, width // heads))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        images, height, width, _ = x.shape
        tokens = height * width
        three = self.qkv(x).reshape(images, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = three.reshape(3, images * self.heads, tokens, -1).unbind(0)
        scores = (query * self.scale) @ key.transpose(-2, -1)
        scores = self._add_positions(scores, query, height, width)
        scores = scores.softmax(dim=-1)
        x = (scores @ value).view(images, self.heads, height, width, -1).permute(0, 2, 3, 1, 4)
        x = x.reshape(images, height, width, -1)
        x = self.proj(x)
        return x

    def _add_positions(self, scores: torch.Tensor, query: torch.Tensor, height: int, width: int) -> torch.Tensor:
        rows = take_distances(self.rel_pos_h, height)
        columns = take_distances(self.rel_pos_w, width)
        maps, _, channels = query.shape
        placed = query.reshape(maps, height, width, channels)
        of_rows = torch.einsum("bhwc,hkc->bhwk", placed, rows)
        of_columns = torch.einsum("bhwc,wkc->bhwk", placed, columns)
        table = scores.view(maps, height, width, height, width) + of_rows[..., None] + of_columns[..., None, :]
        return table.view(maps, height * width, height * width)


def take_distances(vectors: torch.Tensor, side: int) -> torch.Tensor:
    """A vector for each pair of rows (or columns), by their distance: side x side x channels."""
    if vectors.shape[0] != 2 * side - 1:  # another size than the weights were made for
        stretched = F.interpolate(vectors.t()[None], size=2 * side - 1, mode="linear")
        vectors = stretched[0].t()
    number = torch.arange(side)
    return vectors[number[:, None] - number[None, :] + side - 1]


class DropPath(nn.Module):
    """Drops all that a block adds, for some of the images; the others are scaled up."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return x
        kept = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - self.share)
        kept.div_(1 - self.share)
        return x * kept


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc1(x)
        x = self.act(x)
        x = self.fc2(x)
        return x


class ViTBlock(nn.Module):
    """``window`` 0: attention to the whole map of ``side`` x ``side`` tokens."""

    def __init__(self, shape: VitShape, drop_path: float, window: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(shape.width, eps=1e-6)
        self.attn = Attention(shape.width, shape.heads, window or shape.side // shape.patch)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()
        self.norm2 = nn.LayerNorm(shape.width, eps=1e-6)
        self.mlp = Mlp(shape.width)
        self.window = window

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = x
        x = self.norm1(x)
        size = x.shape[1], x.shape[2]
        if self.window:
            x, padded = cut_windows(x, self.window)
        x = self.attn(x)
        if self.window:
            x = join_windows(x, padded, size)
        x = before + self.drop_path(x)
        x = x + self.drop_path(self.mlp(self.norm2(x)))
        return x


def cut_windows(x: torch.Tensor, window: int) -> tuple[torch.Tensor, tuple[int, int]]:
    """Windows, padded at the right and below, one after the other; and the padded size."""
    images, height, width, channels = x.shape
    below, right = -height % window, -width % window
    if below or right:
        x = F.pad(x, (0, 0, 0, right, 0, below))
    high, wide = height + below, width + right
    x = x.view(images, high // window, window, wide // window, window, channels)
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, window, window, channels), (high, wide)


def join_windows(windows: torch.Tensor, padded: Sequence[int], size: Sequence[int]) -> torch.Tensor:
    (high, wide), (height, width), window = padded, size, windows.shape[1]
    x = windows.view(-1, high // window, wide // window, window, window, windows.shape[-1])
    x = x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, high, wide, windows.shape[-1])
    if high > height or wide > width:
        x = x[:, :height, :width].contiguous()
    return x


class ViT(nn.Module):
    def __init__(self, shape: VitShape) -> None:
        super().__init__()
        self.feature = Feature(shape.width, shape.patch)
        self.patch_embed = PatchEmbed(shape)
        positions = (_PRETRAINED_SIDE // shape.patch) ** 2 + 1  # one for the class token, which nothing reads here
        self.pos_embed = nn.Parameter(torch.zeros(1, positions, shape.width))
        shares = torch.linspace(0, shape.drop_path, shape.depth, device="cpu").tolist()
        self.blocks = nn.ModuleList(
            ViTBlock(shape, share, 0 if shape.is_global(number) else shape.window)
            for number, share in enumerate(shares)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch_embed(x)
        x = x + self._stretch_positions(x.shape[1], x.shape[2])
        for block in self.blocks:
            x = block(x)
        return x.permute(0, 3, 1, 2)

    def _stretch_positions(self, height: int, width: int) -> torch.Tensor:
        known = self.pos_embed[:, 1:]
        side = round(known.shape[1] ** 0.5)
        if (side, side) == (height, width):
            return known.reshape(1, height, width, -1)
        known = known.reshape(1, side, side, -1).permute(0, 3, 1, 2)
        stretched = F.interpolate(known, size=(height, width), mode="bicubic", align_corners=False)
        return stretched.permute(0, 2, 3, 1)
