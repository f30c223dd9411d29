"""KerasHub's models by name: each is built and traced, on small images."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow", reason="KerasHub jobs need TensorFlow: pip install 'oomproof[tensorflow]'")
pytest.importorskip("keras_hub", reason="pip install 'oomproof[kerashub]'")

import oomproof


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize("name", ["deeplab_v3_plus_resnet50_pascalvoc", "retinanet_resnet50_fpn_coco"])
def test_a_model_by_name(name: str) -> None:
    forecast = oomproof.check(f"keras_hub:{name}", on="24GiB", batch=1, image_size=128)
    weights = forecast.kinds["parameter"] + forecast.kinds["buffer"]
    assert 4 * 30e6 < weights < 4 * 45e6
    assert forecast.kinds["optimizer"] > 1.9 * forecast.kinds["parameter"]  # Adam's
