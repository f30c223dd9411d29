"""cuDNN's scratch memory: algorithms that found no room, and requests that no tensor of the layer explains."""

from __future__ import annotations

from collections.abc import Iterator

from oomproof.diagnosis.amounts import text
from oomproof.diagnosis.causes import moment
from oomproof.diagnosis.causes.moment import quote_line
from oomproof.diagnosis.diagnosis import Cause
from oomproof.diagnosis.facts import Facts, Failure
from oomproof.diagnosis.patterns import Pattern

BEYOND_THE_LAYER = 16
"""times the largest tensor that the log shows: more than a layer makes of its input"""
LARGE = 1 << 30
_WORKS = Pattern(r"\b(?:works?|fits?|runs?|fine|ok|trains?|no (?:error|oom)|goes? through)\b", 2)  # 2: any case


def cudnn_workspace(facts: Facts) -> Iterator[Cause]:
    failure = facts.main
    if failure is None:
        return
    tries = [each for each in facts.failures if each.kind == "plan" or (each.kind == "workspace" and not each.fatal)]
    benchmark = facts.setup.found.get("benchmark", "")
    evidence = (quote_line(failure), *(quote_line(each) for each in tries[:2]), *([benchmark] if benchmark else []))
    if failure.kind == "outside_allocator" or (failure.family, failure.kind) == ("handle", "workspace"):
        asked = max((each.requested or 0 for each in tries), default=0)
        library = "MIOpen" if any("miopen" in each.quote.lower() for each in facts.failures) else "cuDNN"
        refused = f"; {len(tries)} were refused, the largest with {text(asked)}" if asked else ""
        if failure.requested:
            refused = f"; {text(failure.requested)} were refused"
        yield Cause(
            "cudnn_workspace",
            0.85,
            f"device memory: {library} found no room for the workspace of a convolution",
            f"the message names an algorithm, not memory: {library} gives up when none of its algorithms gets its "
            f"scratch memory{refused}",
            evidence,
        )
        return
    if failure.family != "cuda":
        return
    request = failure.requested or 0
    off = _off_afterwards(facts, failure)
    if off:
        yield Cause(
            "cudnn_workspace",
            0.92,
            f"device memory: cuDNN asked for {text(request)} while trying out algorithms; without the trials it works",
            f"{off}: the same step then ran, so the request was a workspace, not a tensor",
            (*evidence, off),
        )
    elif _in_convolution(failure) and request > LARGE and 0 < BEYOND_THE_LAYER * facts.largest_tensor < request:
        yield Cause(
            "cudnn_workspace",
            0.8 if benchmark else 0.72,
            f"device memory: a convolution asked for {text(request)}, far more than any of its tensors: its workspace",
            f"the largest tensor in the log is {text(facts.largest_tensor)}, {request // facts.largest_tensor} times "
            "less; an algorithm that is fast with much scratch memory was being tried",
            evidence,
        )
    elif _in_convolution(failure) and (benchmark or tries):
        again = moment.late(facts, failure) is not None
        yield Cause(
            "cudnn_workspace",
            0.76 if again or tries else 0.5,
            f"device memory: a convolution asked for {text(request)} while cuDNN tries out algorithms",
            "cudnn.benchmark is on: every new image size tries the algorithms again, each with its own workspace",
            evidence,
        )


def _off_afterwards(facts: Facts, failure: Failure) -> str:
    """The line that shows that the same runs with benchmark off."""
    off = facts.setup.found.get("benchmark_off", "")
    number = int(off.split(":", 1)[0].removeprefix("line ")) if off else 0
    if number <= failure.line:
        return ""
    trained = any(step.doing == "train" and step.line > number for step in facts.progress)
    return off if trained or _WORKS.search(off) else ""


def _in_convolution(failure: Failure) -> bool:
    return any("conv" in frame.name.lower() or "conv" in frame.code.lower() for frame in failure.frames[-4:])
