"""What a reader of a Keras forecast should know."""

from __future__ import annotations

from typing import Any

_EAGER = (
    "operations run one by one, as Keras does on PyTorch unless compile(jit_compile=True) asks for torch.compile; the "
    "figures are not for that"
)


def notes_of(model: Any, settings: Any, assumed: tuple[str, ...], backend: str = "tensorflow") -> list[str]:
    found = [_EAGER, *assumed] if backend == "torch" and model.jit_compile else list(assumed)
    if getattr(model, "run_eagerly", False) and backend != "torch":
        found.append("the model is compiled with run_eagerly=True; the forecast is for the compiled graph of the step")
    if settings.get("precision") in ("mixed_float16", "mixed_bfloat16"):
        found.append(
            "layers that give the model's outputs stay in float32, as Keras's guide to mixed precision asks for"
        )
    return found
