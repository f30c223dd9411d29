"""Host memory by the array that was refused and the traceback to it: masks, results, caches, the whole dataset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oomproof.diagnosis.amounts import text
from oomproof.diagnosis.causes import moment, places
from oomproof.diagnosis.causes.moment import quote_line
from oomproof.diagnosis.diagnosis import Cause
from oomproof.diagnosis.facts import Facts, Failure

MANY_IMAGES = 300
LARGEST_IMAGE = 20_000
"""pixels a side"""
SLICES = 64
"""a shortest side from which three sides may be those of a volume"""
FAMILIES = ("array", "cpu", "loader", "tensorflow", "other")


class Masks(NamedTuple):
    """An array that is all masks of one image."""

    number: int
    height: int
    width: int
    sure: bool
    """whether it cannot well be anything else"""


def find_refused_array(facts: Facts) -> Failure | None:
    failure = facts.main
    return failure if failure is not None and failure.where == "host" and failure.family in FAMILIES else None


def describe_request(failure: Failure) -> str:
    return text(failure.requested) if failure.requested is not None else "memory"


def describe_shape(failure: Failure) -> str:
    return f" of shape {list(failure.shape)}" if failure.shape else ""


def evidence(failure: Failure) -> tuple[str, ...]:
    place = places.own(failure)
    return (quote_line(failure), *([f"at {place}"] if place else []))


def eval_results(facts: Facts) -> Iterator[Cause]:
    failure = find_refused_array(facts)
    results = places.find_frame(failure, places.RESULTS) if failure else None
    if failure is None or results is None:
        return
    named = any(places.find_word_of_evaluation(frame) == "name" for frame in failure.frames)
    if moment.find_activity(facts, failure) == "train" and not named:
        return
    if places.find_frame(failure, places.BACKWARD) is not None:
        return
    yield Cause(
        "host_eval_results",
        0.86,
        f"host memory: evaluation asked for {describe_request(failure)}{describe_shape(failure)} to put its results "
        "together",
        f"it failed in {results.place}: the predictions of all images are in RAM at once",
        evidence(failure),
    )


def masks(facts: Facts) -> Iterator[Cause]:
    failure = find_refused_array(facts)
    if failure is None:
        return
    decoding = places.find_frame(failure, places.DECODING_MASKS)
    frame = decoding or places.find_frame(failure, places.MASKS)
    found = layers(failure.shape, failure.dtype)
    if decoding is None and _is_many_images(failure.shape):
        return
    named = frame is not None and len(failure.shape) >= 3 and places.find_frame(failure, places.RESULTS) is None
    if not named and not (found and (frame or found.sure)) and decoding is None:
        return
    size = describe_request(failure)
    product = (
        f"{found.number:,} masks x {found.height} x {found.width} pixels = {size}"
        if found
        else f"{size}{describe_shape(failure)}"
    )
    place = frame.place if frame else places.own(failure) or "the loader"
    yield Cause(
        "host_masks",
        0.88,
        f"host memory: the masks of one image are decoded at full size, {size} at once",
        f"{product}; it failed in {place}",
        evidence(failure),
    )


def giant_image(facts: Facts) -> Iterator[Cause]:
    """PIL refuses what it takes for an attack; in a dataset it is one scan or mosaic among photographs."""
    failure = facts.main
    if failure is None or failure.kind != "bomb":
        return
    yield Cause(
        "outlier_or_bug",
        0.9,
        "host memory: one image has more pixels than PIL opens: an outlier in the data, or a broken file",
        "PIL refuses above twice Image.MAX_IMAGE_PIXELS, before anything is decoded",
        evidence(failure),
        "shrink or tile that image ; if it is meant: a larger PIL.Image.MAX_IMAGE_PIXELS, and RAM for all its pixels",
    )


def image_cache(facts: Facts) -> Iterator[Cause]:
    failure = find_refused_array(facts)
    if failure is None or places.find_frame(failure, places.CACHING) is None:
        return
    yield Cause(
        "host_image_cache",
        0.75,
        f"host memory: {describe_request(failure)} for the image cache were refused",
        "decoded images need about ten times their files",
        evidence(failure),
    )


def generators(facts: Facts) -> Iterator[Cause]:
    """Of Keras: whether a worker was refused memory or the whole process was killed."""
    failure = facts.main
    if failure is None or failure.where != "host":
        return
    seen = facts.setup.found.get("generator", "")
    keras = facts.setup.framework in ("keras", "tensorflow", "matterport", "")
    frame = places.find_frame(failure, places.GENERATORS)
    if frame is None and not (seen and keras):
        return
    size = f"; {describe_request(failure)} were refused" if failure.requested is not None else ""
    yield Cause(
        "host_generators",
        0.87 if frame else 0.82,
        f"host memory: Keras' generators put batches into RAM faster than the GPU takes them{size}",
        "workers x max_queue_size batches wait in RAM, and with use_multiprocessing each worker copies the dataset",
        (*evidence(failure), *([seen] if seen else [])),
    )


def whole_dataset(facts: Facts) -> Iterator[Cause]:
    failure = find_refused_array(facts)
    if failure is None:
        return
    single = _is_one_image(failure.shape)
    several = len(failure.shape) >= 3 and failure.shape[0] >= MANY_IMAGES and not single
    images = several and layers(failure.shape, failure.dtype) is None
    of_one_image = places.MASKS if len(failure.shape) == 3 else places.DECODING_MASKS
    others = (places.IN_A_WORKER, of_one_image, places.RESULTS)
    loading = places.find_frame(failure, places.WHOLE) is not None and not any(
        places.find_frame(failure, each) for each in others
    )
    if not images and not loading:
        return
    if single:
        yield Cause(
            "host_whole_dataset",
            0.62,
            f"host memory: RAM is full of images read before; one more, {describe_request(failure)}, is refused",
            f"{list(failure.shape)} is one image; {places.own(failure)} reads them all before the training begins",
            evidence(failure),
        )
        return
    # Three long sides may be a stack of images or one volume; the log does not tell.
    volume = images and not loading and len(failure.shape) == 3 and min(failure.shape) >= SLICES
    thing = "slices or images" if volume else "images" if len(failure.shape) >= 4 else "samples"
    count = f"{failure.shape[0]:,} {thing} at once" if images else "everything at once"
    size = f": {describe_request(failure)}" if failure.requested is not None else ""
    whole = "one volume, or the whole dataset," if volume else "the whole dataset"
    yield Cause(
        "host_whole_dataset",
        0.6 if volume else 0.84 if images else 0.7,
        f"host memory: {whole} becomes one array{describe_shape(failure)}{size}",
        f"{count}, at {places.own(failure) or 'loading'}; it must fit into RAM, and is often copied once more "
        "when its type changes",
        evidence(failure),
    )


def _is_one_image(shape: Sequence[int]) -> bool:
    if len(shape) != 3 or shape[2] > 4:
        return False
    return max(shape[:2]) <= min(LARGEST_IMAGE, 4 * min(shape[:2]))


def _is_many_images(shape: Sequence[int]) -> bool:
    """Whether an array has the images, or the masks, of a whole set: number x height x width x channels."""
    return len(shape) == 4 and shape[0] >= MANY_IMAGES and shape[3] <= 4


def layers(shape: Sequence[int], dtype: str) -> Masks | None:
    """The masks of one image, whichever axis counts them."""
    if len(shape) != 3 or (dtype and not re.search(r"uint8|bool|int8|float32", dtype)):
        return None
    ways = ((shape[0], shape[1], shape[2]), (shape[2], shape[0], shape[1]))
    # Height and width are more alike than either is to a count.
    for number, height, width in sorted(ways, key=lambda way: max(way[1:]) / max(1, min(way[1:]))):
        if number > 4 and min(height, width) >= 200 and max(height, width) <= 8 * min(height, width):
            sure = bool(re.search(r"uint8|bool", dtype)) and number < 3000 and max(height, width) >= 600
            return Masks(number, height, width, sure)
    return None
