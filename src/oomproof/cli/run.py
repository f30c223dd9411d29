"""``oomproof run``: a training command, started again with thriftier settings when memory killed it; or a training of
the TensorFlow Object Detection API from its pipeline.config (run_config.py)."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from oomproof.cli.arguments import Debug, Quiet
from oomproof.cli.run_config import (
    Accumulate,
    Gpus,
    LogEvery,
    ModelDir,
    Precision,
    Recompute,
    SaveEvery,
    Seed,
    Steps,
    is_config,
    run_config,
)
from oomproof.cli.screen import complain
from oomproof.errors import InputError

TRIES = 5


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- COMMAND... | PIPELINE.CONFIG",
            help="The training, as you would start it; or the config of one of the Object Detection API.",
        ),
    ],
    *,
    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="DEVICE",
            help="The GPU or size that the training keeps to (a command by its oomproof.Guard): 8GiB.  "
            "[default: all there is]",
            show_default=False,
        ),
    ] = "",
    tries: Annotated[int, typer.Option("--tries", metavar="N", help="Starts after the first one.")] = TRIES,
    resume_with: Annotated[
        str,
        typer.Option(
            "--resume-with",
            metavar="ARGUMENTS",
            help="What makes the script go on from its last checkpoint, from the second start on: '--resume auto'.",
        ),
    ] = "",
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="Settings that `fit --write` left: tried before halving."),
    ] = None,
    batch_flag: Annotated[
        str, typer.Option("--batch-flag", metavar="NAME", help="The script's flag for the batch, if not a usual one.")
    ] = "",
    accumulate_flag: Annotated[
        str,
        typer.Option("--accumulate-flag", metavar="NAME", help="Its flag for micro-batches an update, if it has one."),
    ] = "",
    model_dir: ModelDir = None,
    steps: Steps = None,
    accumulate: Accumulate = None,
    recompute: Recompute = False,
    precision: Precision = "",
    gpus: Gpus = 1,
    seed: Seed = None,
    log_every: LogEvery = 100,
    save_every: SaveEvery = 1000,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Run a training; when memory kills it, start it again with less.

    The command's output goes on as it is. Where it ends for want of memory (its own error, a kill by the kernel or the
    container, dead workers), the cause is found as by `explain`, and it is started again with fewer workers, the plan's
    numbers, or half the batch and twice the accumulation. A change of the images an update has is said in capitals.
    Other errors end it at once. Signals are passed on, and no process of the command outlives this one.

    Exit code: the command's own, of its last start (128 + N where signal N ended it).

    With a pipeline.config and --model-dir, the TensorFlow Object Detection API's own model is trained in this way:
    micro-batches whose gradients are added up and applied once, fp16, recomputation, checkpoints that resume exactly.
    Where the config does not fit --on, what keeps the training as it is is done and said. Ctrl-C saves.

    \b
    Examples:
      oomproof run -- python train.py --batch-size 16
      oomproof run --on 8GiB --resume-with "--resume auto" -- python train.py --batch-size 16 --accumulate 1
      oomproof run --tries 3 -- torchrun --nproc-per-node 2 train.py --batch-size 8
      oomproof run pipeline.config --model-dir out/ --on 8GiB
    """
    if is_config(command):
        only = {"--tries": tries != TRIES, "--resume-with": resume_with, "--plan": plan is not None}
        if given := [name for name, is_given in only.items() if is_given]:
            raise InputError(f"{given[0]} is for commands; a training from a pipeline.config goes on by itself")
        raise typer.Exit(
            run_config(
                command[0], model_dir, on=on, steps=steps, accumulate=accumulate, recompute=recompute,
                precision=precision, gpus=gpus, seed=seed, log_every=log_every, save_every=save_every, quiet=quiet,
            )
        )  # fmt: skip
    if model_dir is not None:
        raise InputError(f"--model-dir goes with a pipeline.config; got {' '.join(command)}")
    import psutil

    from oomproof.run.supervisor.supervise import Request, supervise

    if not command:
        raise InputError("expected a command after --, as in: oomproof run -- python train.py")
    if tries < 0:
        raise InputError(f"--tries wants a number from 0 on; got {tries}")
    try:
        resume = tuple(shlex.split(resume_with))
    except ValueError as error:
        raise InputError(f"--resume-with wants arguments as a shell reads them: {error}") from None
    settings = None
    if plan is not None:
        from oomproof.changes.settings_file import read_settings

        settings = read_settings(plan)
    budget = None
    if on:
        from oomproof.memory.cards.devices import find_device

        budget = find_device(on).budget
    request = Request(
        command, tries, resume, settings, batch_flag, accumulate_flag, budget, psutil.virtual_memory().total
    )
    outcome = supervise(request, _say)
    if outcome.words:
        _say(outcome.words)
    raise typer.Exit(outcome.code)


def _say(words: str) -> None:
    if sys.stderr is not None:
        complain(words)
        sys.stderr.flush()
