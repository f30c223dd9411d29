"""Causes that the traceback names: matching of boxes, evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.diagnosis.amounts import text
from oomproof.diagnosis.causes import columns, moment, places
from oomproof.diagnosis.causes.moment import quote_line
from oomproof.diagnosis.diagnosis import Cause
from oomproof.diagnosis.facts import Facts, Failure, Frame
from oomproof.diagnosis.growth import median
from oomproof.diagnosis.patterns import Pattern

MANY_ANCHORS = 5000
WITHOUT_GRADIENTS = ("tensorflow", "xla", "handle")
"""families whose frameworks keep nothing for a backward pass unless they are told to"""
WHOLE_VOLUME = "sliding_window_inference"
KEEPING = ("concat", "gather", "update", "append", "extend")
_AMONG_METRICS = Pattern(r"(?:^|[/\\])(?:eval|evaluation|metrics)[/\\][^/\\]+$")
_SEMANTIC = Pattern(r"sem_seg|semantic|seg_logits?")
_INSTANCES = Pattern(r"\d+/\d+ [\d.]+G (?:[\d.]+ ){3,5}(\d{1,7}) \d{2,5}\b")


def gt_boxes(facts: Facts) -> Iterator[Cause]:
    """Boxes x anchors: a matrix that one crowded image makes huge."""
    failure = facts.main
    on_cpu = [each for each in facts.failures if each.kind == "on_cpu" and each.op == "boxes"]
    if failure is None or failure.where == "shm":
        return
    frame = places.find_frame(failure, places.MATCHING)
    in_eval = (
        _is_evaluating(facts, failure)
        and frame is not None
        and places.find_frame(failure, places.POSTPROCESSING) is not None
    )
    in_graph = failure.family == "tensorflow" and places.IN_A_GRAPH.search(failure.op)
    matrix = _matrix(failure)
    request = f"asked for {text(failure.requested)}" if failure.requested is not None else "ran out"
    if frame is not None and not in_eval:
        implied = ""
        if failure.requested is not None and failure.requested > 64 << 20:
            implied = f"; at 4 bytes each that is {failure.requested / 4e6:,.0f} million pairs"
        host = failure.where == "host"
        queries = places.find_frame(failure, places.MATCHING_QUERIES) is not None
        partner = "query" if queries else "anchor or query"
        partners = "queries" if queries else "anchors"
        crowd = _crowd(facts, failure)
        doing = f"matching boxes with {partners}"
        how = f"compares every box with every {partner}{implied}"
        if places.find_frame(failure, places.DENOISING) is not None:
            doing, how = "the denoising queries", "makes noised copies of every box, and a mask of all pairs of them"
        yield Cause(
            "gt_boxes",
            0.6 if host else 0.86,
            f"{'host' if host else 'device'} memory: {doing} {request}: an image with very many boxes",
            f"it failed in {frame.place}, which {how}; {crowd or 'one crowded image is enough'}",
            (
                quote_line(failure),
                f"frame {frame.place}",
                *([crowd] if crowd else []),
                *(quote_line(each) for each in on_cpu[:2]),
            ),
        )
    elif failure.where == "device" and (in_graph or matrix):
        shape = list(failure.shape)
        why = f"tensor {shape} is boxes x anchors" if matrix else f"tensor {shape} belongs to {failure.op}"
        yield Cause(
            "gt_boxes",
            0.84 if in_graph and matrix else 0.75 if in_graph else 0.55,
            f"device memory: matching boxes with anchors {request}",
            f"{why}: it grows with the boxes of the fullest image",
            (quote_line(failure),),
        )
    elif on_cpu and failure.where == "device":
        yield Cause(
            "gt_boxes",
            0.7,
            "device memory: matching boxes had to go to the CPU before; now it was not enough",
            f"line {on_cpu[0].line} shows that comparing boxes with anchors ran out first",
            (quote_line(failure), *(quote_line(each) for each in on_cpu[:2])),
        )


def _crowd(facts: Facts, failure: Failure) -> str:
    """Ultralytics prints how many boxes a batch has: whether the last had far more than those before."""
    counts = [int(found[1]) for step in facts.before(failure) if (found := _INSTANCES.match(step.text))]
    if len(counts) < 2 or counts[-1] < 1.5 * median(counts[:-1]):
        return ""
    return f"the last batch had {counts[-1]:,} boxes, those before it about {median(counts[:-1]):,}"


def _matrix(failure: Failure) -> bool:
    """[boxes, anchors], with a batch before or coordinates behind it."""
    sides = [side for side in failure.shape if side > 4]
    return (
        failure.family == "tensorflow"
        and not places.is_weight(failure)
        # The sides of a weight are round; how many anchors an image has seldom is.
        and any(side % 64 for side in sides)
        and len(sides) == 2
        and max(sides) >= MANY_ANCHORS
        and min(sides) <= 5000
        and max(sides) >= 8 * min(sides)
        and len(failure.shape) <= 3
    )


def _is_evaluating(facts: Facts, failure: Failure) -> bool:
    named = any(places.find_word_of_evaluation(frame) for frame in places.frames_outside_torch(failure))
    return named or moment.find_activity(facts, failure) in ("eval", "results")


def _evaluation_frame(failure: Failure) -> Frame | None:
    """A function that is named so tells most, then a line of code, then a file."""
    told = [(places.find_word_of_evaluation(frame), frame) for frame in places.frames_outside_torch(failure)]
    return next((frame for by in ("name", "code", "file") for word, frame in told if word == by), None)


def evaluation(facts: Facts) -> Iterator[Cause]:
    failure = facts.main
    if failure is None or failure.where != "device":
        return
    frame = _evaluation_frame(failure)
    rising = columns.find_growth_in_evaluation(facts, failure)
    during = moment.find_activity(facts, failure) in ("eval", "results") or rising is not None
    post = places.find_frame(failure, places.POSTPROCESSING) or _find_sliding_window(failure)
    backward = any(".backward(" in each.code for each in failure.frames)
    if (frame is None and not during and (post is None or not _is_of_an_evaluation(post))) or backward:
        return
    request = text(failure.requested) if failure.requested is not None else "more memory"
    step = moment.last(facts, failure)
    seen = f"frame {frame.place}" if frame else f"line {step.line}: {step.text}" if step else ""
    evidence = tuple(part for part in (quote_line(failure), seen, f"frame {post.place}" if post else "") if part)
    trained = moment.late(facts, failure) is not None or bool(moment.find_training_steps(facts, failure))
    fitted = "training had fitted; " if trained else ""
    safe = places.find_frame(failure, places.SAFE_EVALUATION) is not None
    if post is None and frame is not None and failure.family == "cuda" and not places.in_network(failure):
        place = failure.frames[-1].place
        yield Cause(
            "eval_postprocess",
            0.76,
            f"device memory: evaluation asked for {request} outside the network: its own work on the predictions",
            f"{fitted}it failed in {place}, not a layer; what is kept of the predictions there, or made of them, "
            "is too large",
            evidence,
        )
        return
    if post is not None:
        kept = any(word in f"{post.name} {post.code}" for word in KEEPING)
        what = "predictions that are kept on the GPU" if kept else "masks or predictions at full image size"
        grows = "the images evaluated so far" if kept else "detections x height x width of an image"
        if _SEMANTIC.search(f"{post.name} {post.code}"):
            grows = "classes x height x width of an image"
        if places.SUPPRESSION.search(f"{post.name} {post.code}"):
            what, grows = "overlapping boxes are suppressed", "the boxes that pass the confidence threshold, squared"
        if post.name == WHOLE_VOLUME:
            what, grows = "the results of all windows, for the whole volume", "classes x the volume"
        yield Cause(
            "eval_postprocess",
            0.88,
            f"device memory: evaluation asked for {request} after the network: {what}",
            f"{fitted}it failed in {post.place}, whose memory grows with {grows}",
            evidence,
        )
        return
    below = f"{fitted}it failed below {frame.place if frame else 'evaluation'}"
    if rising is not None:
        yield _blame_growth(failure, rising, safe or failure.family in WITHOUT_GRADIENTS, evidence)
    if not safe and failure.family not in WITHOUT_GRADIENTS:
        yield Cause(
            "eval_no_grad",
            0.7,
            f"device memory: the network ran out in evaluation, asking for {request}",
            f"{below}; nothing in the traceback shows that gradients are off (a `with` block would not), and with them "
            "on every layer's activations are kept",
            evidence,
        )
    more = "evaluation needs more than training did" if trained else "a batch of the evaluation does not fit"
    yield Cause(
        "eval_postprocess",
        0.8 if safe or failure.family in WITHOUT_GRADIENTS else 0.5,
        f"device memory: {more}, {request} were refused",
        f"{below}: its images, its batch or the predictions it keeps are larger",
        evidence,
    )


def _find_sliding_window(failure: Failure) -> Frame | None:
    """MONAI puts the windows' results together in one tensor of the whole volume: itself, not a layer below it."""
    inner = failure.frames[-1] if failure.frames else None
    return inner if inner is not None and inner.name == WHOLE_VOLUME else None


def _is_of_an_evaluation(post: Frame) -> bool:
    """Whether nothing but an evaluation does that: it pastes masks, or its file stands among the metrics."""
    return "paste" in places.describe_frame(post) or _AMONG_METRICS.search(post.file) is not None


def _blame_growth(failure: Failure, rising: columns.Course, safe: bool, evidence: tuple[str, ...]) -> Cause:
    """Memory that rises with every batch of an evaluation: graphs are kept, or, without gradients, predictions."""
    shown = columns.describe_course(rising)
    if safe:
        return Cause(
            "eval_postprocess",
            0.86,
            "device memory: it grows with every batch of the evaluation: predictions are kept on the GPU",
            f"{shown}; the traceback shows that gradients are off, so it is what the evaluation itself collects",
            (shown, *evidence),
        )
    return Cause(
        "eval_no_grad",
        0.87,
        "device memory: it grows with every batch of the evaluation: gradients are on, and each batch's graph is kept",
        f"{shown}; without gradients the network needs the same for every batch (or predictions are kept on the GPU)",
        (shown, *evidence),
    )
