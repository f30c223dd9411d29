"""A second copy of weights and optimizer state on the GPU: a checkpoint that is loaded there, or a copy for later."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oomproof.diagnosis.causes import moment, places
from oomproof.diagnosis.causes.moment import quote_line
from oomproof.diagnosis.diagnosis import Cause
from oomproof.diagnosis.facts import Facts, Failure, Frame, ProgressLine

_CLONING = re.compile(r"Failed to clone\(\) tensor with name")
"""a warning of FSDP, with the failure in it"""
_SHARDED_BY_DEEPSPEED = (
    '"stage3_gather_16bit_weights_on_model_save": false, and zero_to_fp32.py on the sharded checkpoint'
)
_OFFLOADED = (
    "StateDictOptions(full_state_dict=True, cpu_offload=True), in FSDP1 FullStateDictConfig(offload_to_cpu=True, "
    "rank0_only=True); or a sharded checkpoint"
)
FEW_STEPS = 3
"""training lines behind a restart that still count as its beginning"""


def checkpoint_on_gpu(facts: Facts) -> Iterator[Cause]:
    failure = facts.main
    if failure is None or failure.where != "device":
        return
    yield from _in_the_stack(failure) or _after_resuming(facts, failure)


def _in_the_stack(failure: Failure) -> list[Cause]:
    copied = next(
        (frame for frame in failure.frames if places.COPYING_STATE.search(places.describe_frame(frame))), None
    )
    loaded = places.find_frame_outside_steps(failure, places.LOADING)
    if copied is not None and loaded is None:
        return [
            Cause(
                "checkpoint_on_gpu",
                0.85,
                "device memory: weights or optimizer state are being copied on the GPU, where they already are once",
                f"it failed in {copied.place} ({copied.code[:120]}): a copy takes as much again as what it copies",
                (quote_line(failure), f"frame {copied.place}"),
                "keep such copies in host memory: {name: value.cpu() for name, value in model.state_dict().items()}, "
                "or torch.save to disk",
            )
        ]
    saved = places.find_frame(failure, places.SAVING)
    if loaded is None and (saved is not None or _CLONING.search(failure.quote)):
        return [_blame_saving(failure, saved)]
    if loaded is None:
        return []
    return [
        Cause(
            "checkpoint_on_gpu",
            0.92 if places.find_frame(failure, places.DESERIALIZING) is not None else 0.8,
            "device memory: a checkpoint is being loaded onto the GPU, beside what is there already",
            f"it failed in {loaded.place}: the saved tensors go back to the GPU they were saved from; with the model "
            "there, that is a second copy of weights and optimizer state",
            (quote_line(failure), f"frame {loaded.place}"),
        )
    ]


def _blame_saving(failure: Failure, saved: Frame | None) -> Cause:
    where = f"it failed in {saved.place}" if saved is not None else "it failed while state_dict() copied a tensor"
    return Cause(
        "checkpoint_on_gpu",
        0.85,
        "device memory: the checkpoint is put together on the GPU, all shards of the model at once",
        f"{where}: for a full state dict every rank gathers all weights, beside its own shard; what was written "
        "by then is not complete",
        (quote_line(failure), *([f"frame {saved.place}"] if saved is not None else [])),
        _SHARDED_BY_DEEPSPEED if saved is not None and "deepspeed" in saved.file else _OFFLOADED,
    )


def _after_resuming(facts: Facts, failure: Failure) -> list[Cause]:
    restart = moment.find_restart(facts, failure)
    if restart is not None and len(moment.find_steps_of_run(facts, failure)) <= FEW_STEPS:
        return [] if _has_larger_batch(facts, restart) else [_blame_resumed_run(facts, failure, restart)]
    resumed = [step for step in facts.before(failure) if step.doing == "resume"]
    if (
        not resumed
        or not moment.first_step(facts, failure)
        or re.search(r"pretrain|backbone|torchvision://|imagenet", resumed[-1].text, re.IGNORECASE)
    ):
        return []
    resuming = bool(re.search(r"[Rr]esum|optimizer|epoch", resumed[-1].text))
    return [
        Cause(
            "checkpoint_on_gpu",
            0.62 if resuming else 0.4,
            "device memory: the run died right after it resumed; the loaded checkpoint is probably still on the GPU",
            f"line {resumed[-1].line} loads a checkpoint and no step came after it; "
            "weights and optimizer state are there twice",
            (quote_line(failure), f"line {resumed[-1].line}: {resumed[-1].text}"),
        )
    ]


def _blame_resumed_run(facts: Facts, failure: Failure, restart: ProgressLine) -> Cause:
    first = [step for step in moment.find_training_steps(facts, failure) if step.at < restart.at][-1]
    evaluating = any(places.find_word_of_evaluation(frame) for frame in places.frames_outside_torch(failure))
    return Cause(
        "checkpoint_on_gpu",
        0.6 if evaluating else 0.84,
        "device memory: the second run in this log resumed and died at once, where the first had trained",
        f"the first run got as far as {moment.describe_moment(first)} (line {first.line}); what is new in the second "
        f"is the checkpoint of line {restart.line}, probably still on the GPU beside the model and its optimizer state",
        (quote_line(failure), f"line {restart.line}: {restart.text}", f"line {first.line}: {first.text}"),
    )


def _has_larger_batch(facts: Facts, restart: ProgressLine) -> bool:
    """Whether the second run was given more images a step than the first."""
    trained = max((step.line for step in facts.progress if step.doing == "train" and step.at < restart.at), default=0)
    first = [batch for line, batch in facts.setup.batches if line <= trained]
    then = [batch for line, batch in facts.setup.batches if line > trained]
    return bool(first and then and then[-1] > first[-1])
