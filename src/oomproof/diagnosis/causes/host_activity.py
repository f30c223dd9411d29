"""Host memory by what the run was busy with: shuffle buffers, image caches, results of an evaluation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oomproof.diagnosis.causes import columns, moment
from oomproof.diagnosis.causes.moment import quote_line
from oomproof.diagnosis.diagnosis import Cause
from oomproof.diagnosis.facts import Facts

KILLS = ("kernel", "cluster", "exit", "loader", "array", "cpu")


def blame_last_activity(facts: Facts) -> Iterator[Cause]:
    """What the run was busy with when the host ran out."""
    failure = facts.main
    if failure is None or failure.where != "host":
        return
    steps = facts.before(failure)
    recent = [step for step in steps[-6:-1] if step.doing != "train"] + list(steps[-1:])
    shuffle = [step for step in steps if step.doing == "shuffle"]
    if shuffle and (len(moment.find_training_steps(facts, failure)) == 0 or shuffle[-1] in steps[-4:]):
        filled = re.search(r"(\d{1,9}) of (\d{1,9})", shuffle[-1].text)
        amount = f"{filled[1]} of {filled[2]} examples were in it" if filled else "it had just been filled"
        yield Cause(
            "host_shuffle_buffer",
            0.92,
            "host memory: the shuffle buffer of the input pipeline holds too many decoded examples",
            f"the log ends with the shuffle buffer: {amount}, each a whole image; then the process was killed",
            (*(f"line {step.line}: {step.text}" for step in shuffle[-2:]), quote_line(failure)),
        )
    cache = [step for step in recent if step.doing == "cache"]
    if cache:
        size = re.search(r"\(([\d.]+ ?[GMT]i?B)", cache[-1].text)
        yield Cause(
            "host_image_cache",
            0.92,
            f"host memory: the image cache does not fit into RAM{f', {size[1]} were cached' if size else ''}",
            f"line {cache[-1].line} is caching decoded images when memory runs out; "
            "decoded they need about ten times their files",
            (f"line {cache[-1].line}: {cache[-1].text}", quote_line(failure)),
        )
    elif "cache" in facts.setup.found and failure.family in KILLS:
        yield Cause(
            "host_image_cache",
            0.7,
            "host memory: images are cached in RAM, and RAM ran out",
            "caching is switched on; decoded images need about ten times their files",
            (facts.setup.found["cache"], quote_line(failure)),
        )
    results = [step for step in recent if step.doing in ("results", "eval")]
    if results and results[-1] is steps[-1]:
        rising = columns.find_growth_in_evaluation(facts, failure)
        sure = results[-1].doing == "results" or rising is not None
        shown = (columns.describe_course(rising),) if rising is not None else ()
        yield Cause(
            "host_eval_results",
            0.85 if sure else 0.66,
            "host memory: evaluation keeps all predictions in RAM until its end",
            "; ".join(
                (
                    *shown,
                    f"the last line before the end is from evaluation (line {results[-1].line}); predictions "
                    "of all images, with masks at full size, are kept for the metric",
                )
            ),
            (*shown, f"line {results[-1].line}: {results[-1].text}", quote_line(failure)),
        )
