"""A plan for a ViTDet training as its own command line, and the lines of Python that no LazyConfig has a key for."""

from __future__ import annotations

from oomproof.sources.detectron2.vitdet.published import Vitdet
from oomproof.sources.detectron2.vitdet.settings import AFTER_NMS, BEFORE_NMS, KEYS
from oomproof.sources.job import Settings

_OF_TESTS = {BEFORE_NMS: "MODEL.RPN.PRE_NMS_TOPK_TEST", AFTER_NMS: "MODEL.RPN.POST_NMS_TOPK_TEST"}


def write_code(config: Vitdet, settings: Settings) -> list[str]:
    command = f"lazyconfig_train_net.py --config-file projects/ViTDet/configs/{config.name}"
    lines = [" ".join([command, f"--num-gpus {settings['gpus']}", *_overrides(config, settings)])]
    code = _changes_of_code(settings)
    if code:
        lines += ["", "# in its do_train, before trainer.train(...):", *code]
    if settings["expandable_segments"]:
        lines += ["", "# start it with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment"]
    return lines


def _overrides(config: Vitdet, settings: Settings) -> list[str]:
    found = []
    for name, key in KEYS.items():
        value = settings["workers"] if key == "DATALOADER.NUM_WORKERS" else settings[name]
        if value != config.values[key]:
            pair = f"[{value},{config.values[_OF_TESTS[name]]}]" if name in _OF_TESTS else value
            found.append(f"{name}={pair}")
    side = settings["image_size"][0]
    if side != config.shape.side:
        found += [f"model.backbone.net.img_size={side}", f"model.backbone.square_pad={side}"]
        found.append(f"'dataloader.train.mapper.augmentations.2.crop_size=[{side},{side}]'")
        found += [f"dataloader.train.mapper.augmentations.1.target_{way}={side}" for way in ("height", "width")]
        found += [f"dataloader.test.mapper.augmentations.0.{name}={side}" for name in ("short_edge_length", "max_size")]
    if settings["gradient_as_bucket_view"]:
        found.append("train.ddp.gradient_as_bucket_view=True")
    return found


def _changes_of_code(settings: Settings) -> list[str]:
    count, recomputed = settings["accumulate"], settings["checkpoint"]
    names = [
        name for name, wanted in (("Accumulate", count > 1), ("checkpoint_stages", recomputed != "none")) if wanted
    ]
    lines = [f"from oomproof.run.detectron2 import {', '.join(names)}"] if names else []
    if count > 1:
        lines.append(f"trainer.register_hooks([Accumulate({count})])  # {count} batches for each update")
    if recomputed != "none":
        lines.append(f"checkpoint_stages(model, {recomputed!r})")
    if settings["zero_grad"] == "before_forward":
        lines.append("trainer.zero_grad_before_forward = True")
    if settings["update"] not in ("auto", "foreach"):
        fused = settings["update"] == "fused"
        lines.append(f"for group in optim.param_groups: group.update(foreach=False, fused={fused})")
    if settings["optimizer"] != "own":
        lines.append(f"# optimizer: {settings['optimizer']}, which needs a learning rate of its own")
    return lines
