"""When a failure came, and what the run was doing: what the rules ask of progress lines."""

from __future__ import annotations

from oomproof.diagnosis.facts import Facts, Failure, ProgressLine

MANY_STEPS = 50
LINES_OF_A_RUN = 3
"""different lines of progress that a progress bar does not leave behind a traceback"""


def last(facts: Facts, failure: Failure) -> ProgressLine | None:
    found = facts.before(failure)
    return found[-1] if found else None


def find_activity(facts: Facts, failure: Failure) -> str:
    """train, eval, cache ...: the last activity before the failure; empty where the log does not tell."""
    step = last(facts, failure)
    return step.doing if step else ""


def find_training_steps(facts: Facts, failure: Failure) -> list[ProgressLine]:
    return [step for step in facts.before(failure) if step.doing == "train"]


def find_restart(facts: Facts, failure: Failure) -> ProgressLine | None:
    """The line with which a second run in the log resumed what a first one had trained."""
    before = facts.before(failure)
    resumed = [place for place, step in enumerate(before) if step.doing == "resume"]
    if not resumed:
        return None
    # Several lines may tell of one and the same start: the first of those without training between them.
    place = resumed[-1]
    for earlier in reversed(resumed[:-1]):
        if any(step.doing == "train" for step in before[earlier:place]):
            break
        place = earlier
    return before[place] if any(step.doing == "train" for step in before[:place]) else None


def find_steps_of_run(facts: Facts, failure: Failure) -> list[ProgressLine]:
    restart = find_restart(facts, failure)
    return [step for step in find_training_steps(facts, failure) if restart is None or step.at > restart.at]


def late(facts: Facts, failure: Failure) -> ProgressLine | None:
    """The last training step, if the run had gone on for long before: then the settings as such fitted."""
    steps = find_steps_of_run(facts, failure)
    if not steps:
        return None
    numbers = [step.step for step in steps if step.step is not None]
    epochs = [step.epoch for step in steps if step.epoch is not None]
    # Steps that count through a resumed run start high: there, what was seen pass by counts.
    resumed = any(step.doing == "resume" for step in facts.before(failure))
    passed = max(numbers, default=0) - (min(numbers, default=0) if resumed else 0)
    if (
        passed >= MANY_STEPS
        or (epochs and max(epochs) - min(epochs) >= 1)
        or (epochs and max(epochs) >= 2 and not resumed)
    ):
        return steps[-1]
    return None


def find_later_run(facts: Facts, failure: Failure) -> ProgressLine | None:
    """The last line of a run that went on or began anew behind a failure; not where one process of several failed."""
    if failure.rank:
        return None
    after = facts.after(failure)
    steps = {step.text for step in after if step.doing in ("train", "eval")}
    # That it is done, Detectron2 says of a run that an exception ended, too.
    return after[-1] if len(steps) >= LINES_OF_A_RUN else None


def first_step(facts: Facts, failure: Failure) -> bool:
    """Whether the log shows that it died at once: it has progress, but hardly a step."""
    steps = find_steps_of_run(facts, failure)
    numbers = [step.step for step in steps if step.step is not None]
    return late(facts, failure) is None and (not numbers or max(numbers) <= 5)


def describe_moment(step: ProgressLine) -> str:
    parts = [
        f"epoch {step.epoch}" if step.epoch is not None else "",
        f"step {step.step}" if step.step is not None else "",
    ]
    return " ".join(part for part in parts if part) or "training"


def quote_line(failure: Failure) -> str:
    return f"line {failure.line}: {failure.quote}"
