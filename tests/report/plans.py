"""Plans made by hand: a Mask R-CNN brought onto a 12 GB card, one that fits as it is, one that cannot fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from forecasts import MIB, mask_rcnn

from oomproof.memory.cards.devices import Device
from oomproof.memory.forecast import Forecast, Range, Shortage
from oomproof.memory.settings import Role, Settings
from oomproof.plan.plan import Alternative, Change, Plan, Point

GIB = 1 << 30
DEVICE = Device("RTX 3060 12GB", 12042 * MIB, "ampere", (8, 6))
MODULES = ",".join(f"backbone.body.layer{layer}.{block}" for layer in (1, 2, 3, 4) for block in range(3))
NOW = {"batch": 16, "accumulate": 1, "image_size": (800, 1333), "precision": "fp32", "checkpoint": "none"}

ROLES: dict[Role, str] = {"batch": "batch", "image size": "image_size", "precision": "precision", "workers": "workers"}


def forecast(expected: int, high: int, settings: Mapping[str, Any], device: Device = DEVICE) -> Forecast:
    """A Mask R-CNN's forecast with these figures on the device; its other levels follow them."""
    shortage = Shortage(1164 * MIB, "backward", "rpn.head.conv.0.0", "convolution_backward")
    return replace(
        mask_rcnn(device.total, device.name),
        settings=Settings(settings, ROLES),
        device=device,
        allocated=Range(expected - 700 * MIB, expected - 900 * MIB, high - 700 * MIB),
        reserved=Range(expected - 400 * MIB, expected - 700 * MIB, high - 400 * MIB),
        on_device=Range(expected, expected - 300 * MIB, high),
        shortage=shortage if device.budget < expected else None,
        shortage_at_worst=shortage if device.budget < high else None,
    )


def brought_to_fit() -> Plan:
    """16 images a step, in four micro-batches with twelve blocks recomputed."""
    chosen = {**NOW, "batch": 4, "accumulate": 4, "checkpoint": MODULES}
    changes = (
        Change(
            "checkpoint", "none", MODULES, "identical", "12 blocks are computed again in backward; the least recompute "
            "for the bytes needed", round(2.4 * GIB), 1.12, {"checkpoint": MODULES},
        ),
        Change(
            "batch", 16, "4 x 4", "equivalent", "the losses of Mask R-CNN are divided by the samples of a micro-batch",
            round(13.1 * GIB), 0.93, {"batch": 4, "accumulate": 4},
        ),
    )  # fmt: skip
    return Plan(
        job="torchvision:maskrcnn_resnet50_fpn",
        device=DEVICE,
        settings=Settings(chosen, ROLES),
        changes=changes,
        before=forecast(round(24.3 * GIB), round(26.1 * GIB), dict(NOW)),
        after=forecast(round(9.81 * GIB), round(10.9 * GIB), chosen),
        time=1.04,
        alternatives=(
            Alternative("batch 1 x 16", "equivalent", 5 * GIB, 1.31, "slower, and no less is promised"),
            Alternative("precision bf16, batch 8 x 2", "equivalent", 11 * GIB, 0.71, "would need 11 GiB"),
        ),
        frontier=(
            Point(round(26.1 * GIB), 1.0, "identical", ""),
            Point(round(15.2 * GIB), 1.01, "equivalent", "batch 8 x 2"),
            Point(round(10.9 * GIB), 1.04, "equivalent", "batch 4 x 4, checkpoint 12 modules", chosen=True),
            Point(round(7.1 * GIB), 1.19, "equivalent", "batch 2 x 8, checkpoint 16 modules"),
            Point(round(5.0 * GIB), 1.31, "equivalent", "batch 1 x 16"),
        ),
        traces=7,
        seconds=21.4,
    )  # fmt: skip


def as_it_is() -> Plan:
    fits = forecast(4 * GIB, 5 * GIB, {**NOW, "batch": 2})
    return Plan(fits.job, DEVICE, fits.settings, (), fits, fits, 1.0, traces=1, seconds=2.0)


def too_large() -> Plan:
    small = replace(DEVICE, name="3GiB", total=3 * GIB, architecture="", capability=(0, 0))
    plan = brought_to_fit()
    return replace(
        plan,
        device=small,
        before=forecast(round(24.3 * GIB), round(26.1 * GIB), dict(NOW), small),
        after=forecast(round(4.1 * GIB), round(4.6 * GIB), dict(plan.settings), small),
        needs=("--allow image_size: 480x800 would need 2.80 GiB at worst", "--allow backbone: resnet18, AP 5 lower"),
    )
