"""``oomproof run pipeline.config``: its options, and what they start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from oomproof.errors import InputError
from oomproof.files.looking import is_file, say_why_no_file

_ENDINGS = (".config", ".pbtxt")
_PRECISIONS = {"": False, "fp32": False, "float32": False, "fp16": True, "mixed_float16": True}

ModelDir = Annotated[
    Path | None,
    typer.Option(
        "--model-dir", metavar="FOLDER", help="Of a pipeline.config: where checkpoints go, and are gone on from."
    ),
]
Steps = Annotated[
    int | None, typer.Option("--steps", metavar="N", min=1, help="Of a config: updates.  [default: its num_steps]")
]
Accumulate = Annotated[
    int | None,
    typer.Option("--accumulate", metavar="N", min=1, help="Of a config: micro-batches that each batch is cut into."),
]
Recompute = Annotated[
    bool,
    typer.Option("--recompute", help="Of a config: compute blocks of the feature extractor again in backward."),
]
Precision = Annotated[
    str, typer.Option("--precision", metavar="TYPE", help="Of a config: fp16 scales the loss.  [default: fp32]")
]
Gpus = Annotated[
    int, typer.Option("--gpus", metavar="N", min=1, help="Of a config: GPUs that share batch_size (MirroredStrategy).")
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Of a config: order of the data and all draws.  [default: 0]"),
]
LogEvery = Annotated[int, typer.Option("--log-every", metavar="N", min=1, help="Of a config: steps between lines.")]
SaveEvery = Annotated[
    int, typer.Option("--save-every", metavar="N", min=1, help="Of a config: steps between checkpoints.")
]


def is_config(command: Sequence[str]) -> bool:
    return len(command) == 1 and command[0].endswith(_ENDINGS)


def run_config(
    path: str,
    model_dir: Path | None,
    *,
    on: str,
    steps: int | None,
    accumulate: int | None,
    recompute: bool,
    precision: str,
    gpus: int,
    seed: int | None,
    log_every: int,
    save_every: int,
    quiet: bool,
) -> int:
    """The exit code."""
    from oomproof.api.run_config import plan_training
    from oomproof.cli.screen import progress
    from oomproof.frameworks.object_detection import require_api
    from oomproof.run.tf_object_detection.process import run_in_process

    if not is_file(path):
        raise InputError(f"{say_why_no_file(path)}: expected a pipeline.config")
    if model_dir is None:
        raise InputError("expected --model-dir FOLDER, where the checkpoints of the training go")
    if precision not in _PRECISIONS:
        raise InputError(f"--precision wants fp32 or fp16; got {precision}")
    require_api("oomproof run with a pipeline.config")
    with progress(quiet) as say:
        request, lines = plan_training(
            Path(path),
            model_dir,
            on=on,
            steps=steps,
            accumulate=accumulate,
            recompute=recompute or None,
            half=_PRECISIONS[precision],
            gpus=gpus,
            seed=seed,
            log_every=log_every,
            save_every=save_every,
            progress=lambda text, _: say(text),
        )
    for line in lines:
        typer.echo(line)
    return run_in_process(request)
