"""Trainers, models and the code of oomproof around them: what a script says of its training beside the config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import config_steps, handing_on, loading, looking_up, optimizers, replacing
from oomproof.sources.detectron2.script.contents import (
    Call,
    Foreign,
    Function,
    Hook,
    Items,
    Made,
    Parts,
    Ref,
    Run,
    Section,
    Unknown,
)
from oomproof.sources.detectron2.script.knowing import NotKnown, iterate_value, require_known

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

MODELS = ("build_model",)
LOADERS = (*loading.BUILDERS, "do_train")
"""calls that take a config to train with it; so do classes whose name ends in Trainer"""
WRAPPERS = ("create_ddp_model", "DistributedDataParallel", "DDP", "DataParallel")
_OF_OOMPROOF = ("Accumulate", "accumulate", "accumulated_step", "checkpoint_stages")
_LOADERS_OF_TRAINERS = ("data_loader", "_data_loader_iter", "_data_loader_iter_obj")
_OWN_CODE = {
    "run_step": "steps as Detectron2's trainer does",
    "build_model": "the model of the config",
}
"""methods of a trainer that a script may have of its own, and what is forecast in their place"""


def is_trainer(bases: Sequence[str]) -> bool:
    return any(name.endswith("Trainer") for name in bases)


def begin(reader: Reader, name: str, call: Call, self: Ref | None = None) -> Any:
    """``DefaultTrainer(cfg)``, ``build_model(cfg)``, ``SimpleTrainer(model, loader, optimizer)``. ``self`` is an object
    of a class of the script's own, which is the trainer from then on."""
    handing_on.run_handed(reader)
    if name in loading.BUILDERS:
        loading.record(reader, name, call)
    run: Ref | None = next((each for each in call.every if isinstance(reader.memory.get(each), Run)), None)
    config = next((each for each in call.every if isinstance(each, Section) and not each.prefix), None)
    made = reader.memory[config.of] if config is not None else None
    if run is None and isinstance(made, Made):
        now = config_steps.read_now(reader, made)
        run = reader.memory.new(Run(now, is_model=name in MODELS, by_hand=name in MODELS))
        reader.runs.append(run)
    before = reader.memory.get(run)
    if run is not None and isinstance(before, Run):
        before = replacing.tell(reader, before)
    if run is None or not isinstance(before, Run):
        if name not in LOADERS:
            reader.blind.append(f"{reader.at(call.node)}: {name} gets a config that is made elsewhere")
        return Unknown(name)
    is_model = before.is_model and not name.endswith("Trainer")
    after = replace(before, training={**before.training, **_read_trainer(reader, name, call)}, is_model=is_model)
    if self is None:
        reader.memory[run] = after
        return run
    was = reader.memory[self]
    own = was if isinstance(was, Parts) else Parts("object")
    reader.memory[self] = replace(after, above=own.above, parts={"cfg": config, **own.parts})
    reader.runs = [self if each == run else each for each in reader.runs]
    return self


def _read_trainer(reader: Reader, name: str, call: Call) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if name == "AccumulatingTrainer":
        found["accumulate"] = call.get("accumulate", 1, 1)
    if name in ("SimpleTrainer", "AMPTrainer"):
        found |= optimizers.given_to(reader, call)
    if name == "SimpleTrainer":
        found["precision"] = "fp32"
    if name == "AMPTrainer":
        found["precision"] = _precision(call.words["precision"]) if "precision" in call.words else "fp16"
    if "zero_grad_before_forward" in call.words:
        found["zero_grad"] = _zero_grad(reader, call.words["zero_grad_before_forward"])
    return found


def follow_methods(reader: Reader, run: Ref) -> None:
    """Hooks that a trainer of the script's own builds, and the step that it takes."""
    content = reader.memory[run]
    cls = content.above if isinstance(content, Run) else None
    known = {"build_model"} if _follow_own_model(reader, run) else set()
    for name in ("build_hooks", "run_step"):
        method = looking_up.find_attribute(reader, cls, name)
        if isinstance(method, Function):
            value = reader.call(method, Call((run,), {}, method.node))
            if name == "build_hooks":
                register(reader, run, value)
    loading.follow_own_loader(reader, run)
    optimizers.follow_builder(reader, run)
    after = reader.memory[run]
    for name, instead in _OWN_CODE.items():
        method = looking_up.find_attribute(reader, cls, name)
        if not isinstance(method, Function) or not isinstance(after, Run) or name in known:
            continue
        if name == "run_step" and "accumulate" in after.training:
            continue
        guess = f"{method.file}:{method.node.lineno}: {name} is code of the script; forecast is {instead}"
        after = replace(after, config=replace(after.config, guesses=(*after.config.guesses, guess)))
        reader.memory[run] = after


def _follow_own_model(reader: Reader, run: Ref) -> bool:
    """``build_model`` of a trainer of the script's own, which may change the config first; whether what it gives back
    is the model of that config."""
    content, method = reader.memory[run], looking_up.find_method(reader, run, "build_model")
    config = content.parts.get("cfg") if isinstance(content, Run) else None
    if not isinstance(method, Function) or not isinstance(config, Section):
        return False
    before, runs = reader.memory[config.of], list(reader.runs)
    model = reader.call(method, Call((config,) if "staticmethod" in method.marks else (run, config), {}, method.node))
    reader.runs = runs
    content, made, built = reader.memory[run], reader.memory[config.of], reader.memory.get(model)
    if isinstance(content, Run) and isinstance(made, Made) and made is not before:
        content = replace(content, config=config_steps.read_now(reader, made))
    if isinstance(content, Run) and isinstance(built, Run):  # modules that it computes again, and the like
        content = replace(content, training={**built.training, **content.training})
    reader.memory[run] = content
    return isinstance(built, Run)


def call_method(reader: Reader, run: Ref, name: str, call: Call) -> Any:
    content = reader.memory[run]
    assert isinstance(content, Run)
    if name == "register_hooks" and call.every:
        register(reader, run, call.every[0])
    elif name == "train" and not content.is_model:
        reader.memory[run] = replace(content, begun=True)
    elif name == "build_hooks":
        return reader.memory.new(Items(()))
    elif name == optimizers.BUILDER:
        return optimizers.make_foreign(reader, Foreign(name), call)
    return run if name in ("to", "cuda", "train") else Unknown(name)


def register(reader: Reader, run: Ref, hooks: Any) -> None:
    items = iterate_value(reader, hooks)
    if items is None:
        if reader.names_accumulate:  # somewhere among them may be oomproof's
            say(reader, run, "accumulate", Unknown("the hooks"))
        return
    for each in items:
        if isinstance(each, Hook):
            say(reader, run, "accumulate", each.count)


def say(reader: Reader, run: Any, setting: str, value: Any) -> None:
    content = reader.memory.get(run)
    if isinstance(content, Run) and not content.begun:
        reader.memory[run] = replace(content, training={**content.training, setting: value})


def set_attribute(reader: Reader, run: Ref, name: str, value: Any) -> None:
    """``trainer._trainer.zero_grad_before_forward = True``"""
    if name == "zero_grad_before_forward":
        say(reader, run, "zero_grad", _zero_grad(reader, value))
    elif name == "precision":
        content = reader.memory[run]
        fixed = isinstance(content, Run) and "precision" in content.training  # else SOLVER.AMP.ENABLED decides
        say(reader, run, "precision" if fixed else "half", _precision(value))
    elif name == "optimizer":
        say(reader, run, "optimizer", optimizers.read_kind(value, "an optimizer that the script sets"))
    elif name in _LOADERS_OF_TRAINERS:
        content = reader.memory[run]
        assert isinstance(content, Run)
        whose = f"{reader.path}: {name} is set by the script"
        reader.memory[run] = loading.take_loaders(content, reader.memory[reader.loaders], whose)
    else:
        content = reader.memory[run]
        assert isinstance(content, Run)
        reader.memory[run] = replace(content, parts={**content.parts, name: value})


def is_of_oomproof(called: Foreign) -> bool:
    return called.last in _OF_OOMPROOF and (called.name == called.last or called.name.startswith("oomproof."))


def call_oomproof(reader: Reader, name: str, call: Call) -> Any:
    """``Accumulate``, ``accumulate``, ``accumulated_step`` and ``checkpoint_stages``."""
    if name == "Accumulate":
        return Hook(call.get("count", 0, Unknown(name)))
    latest = reader.runs[0] if reader.runs else None
    run = next((each for each in call.every if isinstance(reader.memory.get(each), Run)), latest)
    if name == "checkpoint_stages":
        _checkpoint(reader, run, call.get("stages", 1, Unknown(name)))
    else:
        say(reader, run, "accumulate", call.get("count", 1, Unknown(name)))
    return None


def _checkpoint(reader: Reader, run: Any, stages: Any) -> None:
    before = reader.memory.get(run)
    so_far = before.training.get("checkpoint", ()) if isinstance(before, Run) else ()
    try:
        wanted = require_known(reader, stages)
        texts = wanted.split(",") if isinstance(wanted, str) else [str(each) for each in wanted]
    except (NotKnown, TypeError) as reason:
        say(reader, run, "checkpoint", Unknown(str(reason)))
        return
    if not isinstance(so_far, Unknown):
        say(reader, run, "checkpoint", (*so_far, *(text.strip() for text in texts)))


def _precision(value: Any) -> Any:
    if isinstance(value, Foreign):
        return {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}.get(value.last, Unknown(value.name))
    return value if isinstance(value, Unknown) else Unknown("precision")


def _zero_grad(reader: Reader, value: Any) -> Any:
    try:
        return "before_forward" if require_known(reader, value) else "before_backward"
    except NotKnown as reason:
        return Unknown(str(reason))
