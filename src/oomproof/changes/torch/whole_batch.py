"""Micro-batches of torchvision's detectors that train as one batch: the same samples, the same divisors.

Their losses are divided by what a batch has: sampled anchors and proposals, positives, matched anchors. And their
samplers draw for all images in turn, first the anchors', then the proposals'. So each micro-batch runs forward once
without gradients, which tells the divisors and where the random numbers of each sampler begin; when it is trained, its
losses count for their part of the whole, and every image has the samples that it would have had in one batch.

Images of several sizes are padded to the largest of their micro-batch, not of the batch: the one thing that differs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from oomproof.changes.torch.micro_batches import images_in
from oomproof.frameworks.torch import NormBase

IMAGES, ANCHORS, PROPOSALS, POSITIVES, MATCHED = "images", "anchors", "proposals", "positives", "matched"
_DIVIDED_BY = {
    "loss_objectness": ANCHORS,
    "loss_rpn_box_reg": ANCHORS,
    "loss_classifier": PROPOSALS,
    "loss_box_reg": PROPOSALS,
    "loss_mask": POSITIVES,
}
_RESIZE, _ANCHORS, _PROPOSALS = "resize", "anchors", "proposals"

State = tuple[torch.Tensor, ...]
Streams = dict[str, State]


@dataclass
class _Seen:
    """One micro-batch: how many there are of everything that losses are divided by."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, what: str, number: int) -> None:
        self.counts[what] = self.counts.get(what, 0) + number


@dataclass(frozen=True)
class WholeBatch:
    """What makes one batch of micro-batches."""

    weights: list[dict[str, float]]
    streams: Streams
    detector: torch.nn.Module
    device: torch.device

    @contextmanager
    def as_one_batch(self) -> Iterator[None]:
        """While this lasts, samplers draw as in one batch; afterwards random numbers go on behind them."""
        streams = dict(self.streams)
        with _samplers_instrumented(self.detector, streams, _Seen(), self.device):
            yield
        if _PROPOSALS in streams:
            _set_state(streams[_PROPOSALS], self.device)


def find_detector(model: torch.nn.Module) -> torch.nn.Module | None:
    """The part of the model that is one of torchvision's detectors, with the losses that are known here."""
    if "torchvision" not in sys.modules:
        return None
    from torchvision.models.detection import FCOS, FasterRCNN
    from torchvision.models.detection.ssd import SSD

    found = next((module for module in model.modules() if isinstance(module, (FasterRCNN, FCOS, SSD))), None)
    if found is None or getattr(getattr(found, "roi_heads", None), "keypoint_head", None) is not None:
        return None
    return found


def look_at(
    detector: torch.nn.Module, losses: Callable[[Any], Any], parts: Sequence[Any], device: torch.device
) -> WholeBatch | None:
    """Runs the micro-batches forward without gradients. None: the losses are not the detector's own, by name."""
    begin = _state(device)
    streams: Streams = {_RESIZE: begin}
    if hasattr(detector, "rpn"):
        for _ in range(sum(images_in(part) for part in parts)):
            torch.empty(1).uniform_()  # what the resizing of each image draws, however many sizes there are
        streams[_ANCHORS] = _state(device)
        streams[_PROPOSALS] = begin  # for now: how many are drawn does not depend on it
    first = dict(streams)
    seen, names = [], set()
    with torch.no_grad(), statistics_kept(detector):
        for part in parts:
            each = _Seen({IMAGES: images_in(part)})
            with _samplers_instrumented(detector, streams, each, device):
                found = losses(part)
            names |= set(found) if isinstance(found, dict) else {""}
            seen.append(each.counts)
    _set_state(begin, device)
    if _ANCHORS in streams:
        first[_PROPOSALS] = streams[_ANCHORS]
    by_match = any(MATCHED in counts for counts in seen)
    if not by_match and not names <= set(_DIVIDED_BY):
        return None
    divisors = {name: MATCHED if by_match else _DIVIDED_BY[name] for name in names}
    return WholeBatch(_weights(seen, divisors), first, detector, device)


def _weights(seen: Sequence[dict[str, int]], divisors: dict[str, str]) -> list[dict[str, float]]:
    weights: list[dict[str, float]] = [{} for _ in seen]
    for name, what in divisors.items():
        least = 1 if what == MATCHED else 0  # FCOS and SSD divide by one where nothing is matched
        counts = [max(least, each.get(what, 0)) for each in seen]
        whole = max(least, sum(each.get(what, 0) for each in seen))
        if not whole:
            counts, whole = [each[IMAGES] for each in seen], sum(each[IMAGES] for each in seen)
        for weight, count in zip(weights, counts, strict=True):
            weight[name] = count / whole
    return weights


@contextmanager
def _samplers_instrumented(detector: Any, streams: Streams, seen: _Seen, device: torch.device) -> Iterator[None]:
    """The detector with samplers that draw from their own streams, and losses that are counted."""
    with ExitStack() as stack:
        if hasattr(detector, "rpn"):
            draw = _draw_by_stream(streams, device)
            _wrap(stack, detector.transform, "torch_choice", lambda own, sizes: draw(_RESIZE, own, sizes))

            def anchors(own: Callable[..., Any], labels: Any) -> Any:
                positive, negative = draw(_ANCHORS, own, labels)
                seen.add(ANCHORS, _count(positive) + _count(negative))
                return positive, negative

            def proposals(own: Callable[..., Any], labels: Any) -> Any:
                positive, negative = draw(_PROPOSALS, own, labels)
                seen.add(PROPOSALS, _count(positive) + _count(negative))
                seen.add(POSITIVES, _count(positive))
                return positive, negative

            _wrap(stack, detector.rpn, "fg_bg_sampler", anchors)
            _wrap(stack, detector.roi_heads, "fg_bg_sampler", proposals)
        else:
            owner = detector.head if hasattr(detector, "center_sampling_radius") else detector

            def count_matches(own: Callable[..., Any], targets: Any, outputs: Any, boxes: Any, matches: Any) -> Any:
                seen.add(MATCHED, sum(int((match >= 0).sum()) for match in matches))
                return own(targets, outputs, boxes, matches)

            _wrap(stack, owner, "compute_loss", count_matches)
        yield


def _draw_by_stream(streams: Streams, device: torch.device) -> Callable[..., Any]:
    def draw(stream: str, own: Callable[..., Any], *given: Any) -> Any:
        around = _state(device)
        _set_state(streams[stream], device)
        try:
            return own(*given)
        finally:
            streams[stream] = _state(device)
            _set_state(around, device)

    return draw


def _wrap(stack: ExitStack, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """``owner.name(...)`` becomes ``around(own, ...)`` for as long as the stack lasts."""
    kept, own = vars(owner).get(name), getattr(owner, name)
    setattr(owner, name, lambda *given, **named: around(own, *given, **named))
    stack.callback(lambda: setattr(owner, name, kept) if kept is not None else delattr(owner, name))


def _count(masks: Sequence[torch.Tensor]) -> int:
    return sum(int(mask.sum()) for mask in masks)


def _state(device: torch.device) -> State:
    states: State = (torch.get_rng_state(),)
    return (*states, torch.cuda.get_rng_state(device)) if device.type == "cuda" else states


def _set_state(state: State, device: torch.device) -> None:
    torch.set_rng_state(state[0])
    if len(state) > 1:
        torch.cuda.set_rng_state(state[1], device)


@contextmanager
def statistics_kept(model: torch.nn.Module) -> Iterator[None]:
    """Running statistics of normalisation are afterwards as they were."""
    norms = [norm for norm in model.modules() if isinstance(norm, NormBase) and norm.training]
    kept = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers()]
    try:
        yield
    finally:
        for buffer, before in kept:
            buffer.copy_(before)
