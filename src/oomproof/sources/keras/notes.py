"""What a reader of a Keras forecast should know."""

from __future__ import annotations

from typing import Any

NOT_COMPILED_BY_XLA = (
    "for compile(jit_compile=False), which a plan's apply() sets. Keras's default, jit_compile=\"auto\", compiles the "
    "step with XLA on a GPU: another compiler then plans the memory, and the figures are not for it"
)


def notes_of(model: Any, settings: Any, assumed: tuple[str, ...]) -> list[str]:
    found = [NOT_COMPILED_BY_XLA, *assumed]
    if getattr(model, "run_eagerly", False):
        found.append("the model is compiled with run_eagerly=True; the forecast is for the compiled graph of the step")
    if settings.get("precision") in ("mixed_float16", "mixed_bfloat16"):
        found.append(
            "layers that give the model's outputs stay in float32, as Keras's guide to mixed precision asks for"
        )
    return found
