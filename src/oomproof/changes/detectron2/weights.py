"""Weights with which the losses of micro-batches add up to those of one batch, for Detectron2's own heads.

Each loss is divided by a count of its micro-batch: images, sampled proposals, foreground proposals, visible keypoints,
labelled pixels, positive anchors. What the whole batch would have been divided by is known only when every micro-batch
has been seen, so each runs forward once without gradients, and its random numbers come again when it is trained.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from oomproof.changes.detectron2.accumulating import MicroBatch, device_of, random_state
from oomproof.changes.torch.whole_batch import statistics_kept
from oomproof.errors import InputError
from oomproof.frameworks.detectron2 import averaging_by, has_moving_average, update_average

_LOSSES_FROM = (
    "proposal_generator",
    "roi_heads",
    "roi_heads.box_predictor",
    "roi_heads.mask_head",
    "roi_heads.keypoint_head",
    "sem_seg_head",
)


@contextmanager
def whole_batch(
    model: torch.nn.Module, forward: Callable[[Any], Any], batches: Sequence[Any]
) -> Iterator[Sequence[MicroBatch]]:
    """The micro-batches with their weights; ``forward`` runs the model in the precision it is trained in."""
    _refuse_other_losses(model)
    states, divisors = [], []
    averages: list[tuple[str, float]] = []

    def note_average(name: str, value: float, initial: float, *_: float) -> float:
        averages.append((name, initial))
        return value

    with torch.no_grad(), statistics_kept(model), averaging_by(model, note_average):
        for batch in batches:
            states.append(random_state(device_of(model)))
            divisors.append(_divisors(model, forward, batch))
    if has_moving_average(model):
        average = _move_average(model, *averages[0], divisors)
        with averaging_by(model, lambda *_: average):
            yield [MicroBatch(batch, 1.0, state) for batch, state in zip(batches, states, strict=True)]
    else:
        weights = _weights(divisors)
        yield [MicroBatch(*each) for each in zip(batches, weights, states, strict=True)]


def _weights(divisors: Sequence[Mapping[str, float]]) -> list[dict[str, float]]:
    weights: list[dict[str, float]] = [{} for _ in divisors]
    for name in dict.fromkeys(name for each in divisors for name in each if name != _IMAGES):
        whole = sum(each[name] for each in divisors)
        by = name if whole else _IMAGES  # where nothing was counted, the loss is zero in every micro-batch
        for weight, each in zip(weights, divisors, strict=True):
            weight[name] = each[by] / sum(every[by] for every in divisors)
    return weights


_IMAGES = "images"
_POSITIVES = "positive anchors"


def _divisors(model: torch.nn.Module, forward: Callable[[Any], Any], batch: Sequence[Any]) -> dict[str, float]:
    """What each loss of a micro-batch is divided by, up to a factor that is the same for all of them."""
    from detectron2.utils.events import EventStorage

    # A storage of its own, so that nothing is logged; at iteration 1, where hardly any model draws pictures for it.
    with EventStorage(1) as storage, _keypoints_counted(model) as keypoints:
        names = list(forward(batch))
    seen = {name: value for name, (value, _) in storage.latest().items()}
    images = len(batch)
    found: dict[str, float] = {_IMAGES: images}
    if has_moving_average(model):
        return found | {_POSITIVES: round(seen["num_pos_anchors"] * images)}
    for name in names:
        stage = re.fullmatch(r"loss_(?:cls|box_reg)(?:_stage(\d+))?", name)
        if name.startswith("loss_rpn_"):
            found[name] = images
        elif stage:
            # The first stage of a cascade has the proposals that were sampled, as heads without stages have.
            head = f"stage{stage[1]}/roi_head" if int(stage[1] or 0) else "roi_head"
            found[name] = round((seen[f"{head}/num_fg_samples"] + seen[f"{head}/num_bg_samples"]) * images)
        elif name == "loss_mask":
            found[name] = round(seen["roi_head/num_fg_samples"] * images)
        elif name == "loss_keypoint":
            by_visible = model.get_submodule("roi_heads.keypoint_head").loss_normalizer == "visible"
            found[name] = sum(keypoints) if by_visible else images
        elif name == "loss_sem_seg":
            ignored = model.get_submodule("sem_seg_head").ignore_value
            found[name] = sum(int((image["sem_seg"] != ignored).sum()) for image in batch)
        else:
            raise InputError(f"whole_batch: what {name} is divided by is not known; leave out whole_batch")
    return found


def _move_average(model: Any, name: str, initial: float, divisors: Sequence[Mapping[str, float]]) -> float:
    """RetinaNet and FCOS divide by a moving average of positive anchors: that of the whole batch, moved once."""
    return update_average(model, name, max(sum(each[_POSITIVES] for each in divisors), 1), initial)


@contextmanager
def _keypoints_counted(model: torch.nn.Module) -> Iterator[list[int]]:
    """Visible keypoints inside their proposals, which is what the loss counts and logs nowhere."""
    counts: list[int] = []
    head = dict(model.named_modules()).get("roi_heads.keypoint_head")
    if head is None:
        yield counts
        return

    def count(_head: torch.nn.Module, inputs: tuple[Any, ...], side: int) -> None:
        for instances in inputs[1]:
            if len(instances):
                _, valid = instances.gt_keypoints.to_heatmap(instances.proposal_boxes.tensor, side)
                counts.append(int(valid.sum()))

    hook = head.register_forward_pre_hook(partial(count, side=56))  # any side: what is inside stays inside
    try:
        yield counts
    finally:
        hook.remove()


def _refuse_other_losses(model: torch.nn.Module) -> None:
    """Only the losses of Detectron2's own modules are known for sure."""
    modules = dict(model.named_modules())
    for path in ("", *_LOSSES_FROM):
        module = modules.get(path)
        if module is None:
            continue
        kind = type(module)
        if not kind.__module__.startswith(("detectron2.modeling.", "torch.nn.")):
            raise InputError(
                f"whole_batch knows the losses of Detectron2's own modules, and {path or 'the model'} is a "
                f"{kind.__name__} of {kind.__module__}; leave out whole_batch"
            )
        if getattr(module, "use_fed_loss", False):
            raise InputError("whole_batch: the federated loss depends on all classes of a batch; leave out whole_batch")
