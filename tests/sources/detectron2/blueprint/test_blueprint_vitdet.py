"""ViTDet's blueprint has the parts of Detectron2's model, and its attention computes what attention is."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from oomproof.sources.detectron2.blueprint.build import build_vitdet
from oomproof.sources.detectron2.blueprint.layers import LayerNorm
from oomproof.sources.detectron2.blueprint.vit import Attention, cut_windows, join_windows, take_distances
from oomproof.sources.detectron2.vitdet.published import find_vitdet, list_vitdet
from oomproof.sources.detectron2.vitdet.shape import VitShape

# Parameters of the whole model and of its ViT alone, counted in the models that Detectron2 (commit 02b5c4e) builds from
# its own files; names and shapes of all parameters and buffers were the same too.
COUNTS = {
    "COCO/mask_rcnn_vitdet_b_100ep.py": (110895792, 85889024),
    "COCO/mask_rcnn_vitdet_l_100ep.py": (330684656, 303432704),
    "COCO/mask_rcnn_vitdet_h_75ep.py": (661203760, 631116800),
    "COCO/cascade_mask_rcnn_vitdet_b_100ep.py": (141160990, 85889024),
    "COCO/cascade_mask_rcnn_vitdet_l_100ep.py": (360949854, 303432704),
    "COCO/cascade_mask_rcnn_vitdet_h_75ep.py": (691468958, 631116800),
    "LVIS/mask_rcnn_vitdet_b_100ep.py": (116939778, 85889024),
    "LVIS/mask_rcnn_vitdet_l_100ep.py": (336728642, 303432704),
    "LVIS/mask_rcnn_vitdet_h_100ep.py": (667247746, 631116800),
    "LVIS/cascade_mask_rcnn_vitdet_b_100ep.py": (144902826, 85889024),
    "LVIS/cascade_mask_rcnn_vitdet_l_100ep.py": (364691690, 303432704),
    "LVIS/cascade_mask_rcnn_vitdet_h_100ep.py": (695210794, 631116800),
}


def test_as_many_parameters_as_detectron2_has() -> None:
    assert set(COUNTS) == set(list_vitdet())
    for name, (whole, transformer) in COUNTS.items():
        config = find_vitdet(name)
        with torch.device("meta"):
            model = build_vitdet(config.values, config.shape)
        assert sum(p.numel() for p in model.parameters()) == whole, name
        assert sum(p.numel() for p in model.backbone.net.parameters()) == transformer, name
        assert all(p.requires_grad for p in model.parameters())


def test_modules_have_the_names_that_checkpoints_know() -> None:
    config = find_vitdet("COCO/mask_rcnn_vitdet_b_100ep")
    with torch.device("meta"):
        shapes = {name: tuple(p.shape) for name, p in build_vitdet(config.values, config.shape).named_parameters()}
    assert shapes["backbone.net.pos_embed"] == (1, 197, 768)
    assert shapes["backbone.net.blocks.0.attn.rel_pos_h"] == (27, 64)
    assert shapes["backbone.net.blocks.2.attn.rel_pos_w"] == (127, 64)
    assert shapes["backbone.simfp_2.0.weight"] == (768, 384, 2, 2) and shapes["backbone.simfp_2.1.weight"] == (384,)
    assert shapes["backbone.simfp_5.2.norm.bias"] == (256,)
    assert shapes["proposal_generator.rpn_head.conv.conv1.weight"] == (256, 256, 3, 3)
    assert shapes["roi_heads.box_head.conv4.norm.weight"] == (256,)


@pytest.mark.parametrize(("depth", "whole"), [(12, [2, 5, 8, 11]), (24, [5, 11, 17, 23]), (32, [7, 15, 23, 31])])
def test_which_blocks_see_the_whole_image(depth: int, whole: list[int]) -> None:
    shape = VitShape(768, depth, 12, 0.1)
    assert [block for block in range(depth) if shape.is_global(block)] == whole


def test_windows_are_cut_and_joined_again() -> None:
    x = torch.rand(2, 5, 7, 3)
    windows, padded = cut_windows(x, 4)
    assert windows.shape == (2 * 2 * 2, 4, 4, 3) and padded == (8, 8)
    assert torch.equal(join_windows(windows, padded, (5, 7)), x)


def test_attention_adds_what_was_learned_of_distances() -> None:
    torch.manual_seed(0)
    attention = Attention(8, 2, 3)
    with torch.no_grad():
        attention.rel_pos_h.normal_()
        attention.rel_pos_w.normal_()
    x = torch.rand(1, 3, 3, 8)
    query, key, value = attention.qkv(x).reshape(9, 3, 2, 4).permute(1, 2, 0, 3)
    mask = torch.zeros(2, 9, 9)
    for one in range(9):
        for other in range(9):
            rows, columns = one // 3 - other // 3 + 2, one % 3 - other % 3 + 2
            learned = attention.rel_pos_h[rows] + attention.rel_pos_w[columns]
            mask[:, one, other] = query[:, one] @ learned
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask).permute(1, 0, 2).reshape(1, 3, 3, 8)
    assert torch.allclose(attention(x), attention.proj(expected), atol=1e-5)


def test_learned_distances_are_stretched_to_other_sizes() -> None:
    assert take_distances(torch.rand(5, 2), 3).shape == (3, 3, 2)
    assert take_distances(torch.rand(5, 2), 6).shape == (6, 6, 2)


def test_a_norm_over_channels() -> None:
    x = torch.rand(2, 8, 3, 3)
    expected = F.layer_norm(x.permute(0, 2, 3, 1), (8,), eps=1e-6).permute(0, 3, 1, 2)
    assert torch.allclose(LayerNorm(8)(x), expected, atol=1e-5)
