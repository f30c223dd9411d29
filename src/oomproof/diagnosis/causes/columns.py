"""What the rules ask of memory columns: how they went before the failure, in training and in evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from oomproof.diagnosis.amounts import text
from oomproof.diagnosis.facts import ColumnReading, Facts, Failure, Trend
from oomproof.diagnosis.growth import judge_growth, median, take_last_run

LITTLE = 0.05
"""of the level: a rise that may be a leak and still not what ended the run"""
USED_UP = 0.25
"""of what was free first: with more than that left, it is not what ran out"""
AT_MOST = 2
"""times what a column grew: fragments make the loss larger than the tensors that are kept"""


@dataclass(frozen=True)
class Course:
    """How one column went over one stretch of the run."""

    trend: Trend
    points: tuple[ColumnReading, ...]
    kind: str
    """steady, jumps, level"""

    @property
    def rise(self) -> float:
        """As a share of where it began."""
        begin = max(1, self.points[0].size)
        return abs(self.points[-1].size - begin) / begin


def describe_courses(facts: Facts, failure: Failure, where: str) -> tuple[Course, ...]:
    """How every column of that memory went in training, up to the failure."""
    found = []
    for trend in facts.trends:
        if trend.where not in (where, ""):
            continue
        points = [point for point in trend.points if point.phase == "train" and point.line < failure.line]
        points = points[take_last_run(_in_use(trend, points)) :]
        if kind := judge_growth(_in_use(trend, points), maximum=trend.maximum):
            found.append(Course(trend, tuple(points), kind))
    return tuple(found)


def _in_use(trend: Trend, points: list[ColumnReading]) -> list[int]:
    """The figures; of what is free, so that they rise as it falls, from the most that was free."""
    sizes = [point.size for point in points]
    return [2 * max(sizes) - size for size in sizes] if trend.left else sizes


def find_leak(facts: Facts, failure: Failure, where: str) -> Course | None:
    """A column that rose steadily; none where another shows that what is in use did not, or if it rose too little."""
    courses = describe_courses(facts, failure, where)
    rising = [course for course in courses if course.kind == "steady" and not is_too_little(course, failure)]
    in_use = [course for course in courses if not course.trend.maximum and not course.trend.left]
    if in_use and not any(course in in_use for course in rising):
        return None
    return max(rising, key=lambda course: (not course.trend.maximum, course.rise), default=None)


def is_too_little(course: Course, failure: Failure) -> bool:
    """Whether the request would not have fitted without the growth either, by far: then something else was larger."""
    first, final = (course.points[place].size for place in (0, -1))
    if course.trend.left and final > USED_UP * first:
        return True
    if course.trend.percent or failure.requested is None or failure.free is None:
        return False
    grown = abs(final - first)
    return failure.requested - failure.free > AT_MOST * grown


def find_growth_in_evaluation(facts: Facts, failure: Failure) -> Course | None:
    """A column that rises from batch to batch of the evaluation in which the run died."""
    for trend in facts.trends:
        before = [point for point in trend.points if point.line < failure.line]
        points: list[ColumnReading] = []
        while before and before[-1].phase == "eval":
            points.insert(0, before.pop())
        values = [point.size for point in points]
        if trend.left or trend.where not in (failure.where, "") or len(values) < 4 or values[-1] < 1.05 * values[0]:
            continue
        ups = sum(after > earlier for earlier, after in pairwise(values))
        if ups >= 0.7 * (len(values) - 1) and values[-1] == max(values):
            return Course(trend, tuple(points), "steady")
    return None


def describe_course(course: Course) -> str:
    """In words, with its first and last line."""
    first, final, name = course.points[0], course.points[-1], course.trend.name
    where = f"(line {first.line}) to {level(course, final.size)} (line {final.line}), over {len(course.points)} figures"
    if course.kind == "steady":
        return f"«{name}» {'falls' if course.trend.left else 'rises'} from {level(course, first.size)} {where}"
    if course.kind == "jumps":
        went = "down" if course.trend.left else "up"
        return f"«{name}» went {went} in jumps, from {level(course, first.size)} {where}"
    middle = median([point.size for point in course.points])
    return f"«{name}» stayed near {level(course, middle)} over {len(course.points)} figures, up to line {final.line}"


def level(course: Course, size: int) -> str:
    return f"{size / 1000:.1f} %" if course.trend.percent else text(size)
