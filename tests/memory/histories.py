"""Timelines for tests: any that a Builder can write."""

from __future__ import annotations

from hypothesis import strategies as st

from oomproof.memory.about import About
from oomproof.memory.settings import Settings
from oomproof.memory.timeline import KINDS, PHASES, Builder, Timeline

names = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)
shapes = st.none() | st.lists(st.integers(0, 1 << 20), max_size=4).map(tuple)


@st.composite
def timelines(draw: st.DrawFn, max_events: int = 40) -> Timeline:
    step = Builder()
    for _ in range(draw(st.integers(0, max_events))):
        what = draw(st.sampled_from(("allocate", "allocate", "free", "call", "enter")))
        if what == "allocate":
            step.allocate(
                draw(st.integers(0, 1 << 40)),
                kind=draw(st.sampled_from(KINDS)),
                owner=draw(names),
                op=draw(names),
                shape=draw(shapes),
            )
        elif what == "free" and len(step):
            step.free(draw(st.integers(0, len(step) - 1)))
        elif what == "call":
            step.call(owner=draw(names), spec={"op": draw(names), "n": draw(st.integers(0, 9))})
        elif what == "enter":
            step.enter(draw(st.sampled_from(PHASES)))
    return step.build(About(job=draw(names), settings=Settings({"batch": draw(st.integers(1, 64))})))
