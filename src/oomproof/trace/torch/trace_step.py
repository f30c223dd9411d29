"""A job's steady training step as a Timeline.

The step to forecast is the second: optimizer state exists, and the gradients of the step before are alive until the
loop drops them. The tracer does not run a first step for that. It lays out gradients, lets the optimizer make its
state from them, and traces one step; the first one is put in front afterwards (memory/first_step.py). Of an
accumulated step the last micro-batch is traced, which finds the gradients of the others in place.
A job with a step of its own is simply run twice, and so is one whose gradients are used at once: its optimizer's state
is made here and there in backward.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from oomproof.changes.torch.gradients import at_once_for
from oomproof.changes.torch.training import Training
from oomproof.changes.torch.trees import map_tensors
from oomproof.errors import JobError, OomproofError
from oomproof.frameworks.torch import BatchNormBase, FakeTensor, half_on_cpu, own_buffers, own_parameters
from oomproof.memory.about import About
from oomproof.memory.first_step import with_first_step
from oomproof.memory.timeline import PHASES, Timeline
from oomproof.memory.validation import Validation
from oomproof.memory.widening import describe_widening, stays_wide
from oomproof.trace.request import Progress, TooManyValues, be_silent
from oomproof.trace.torch.around.left_behind import find_leftovers, let_go, model_given_back
from oomproof.trace.torch.around.one_process import loaders_without_workers
from oomproof.trace.torch.around.said_device import Asked, describe_other_way
from oomproof.trace.torch.around.threads import tracing_threads
from oomproof.trace.torch.around.uncompiled import unwrap_factory, without_compiling
from oomproof.trace.torch.around.undivided import without_dividing
from oomproof.trace.torch.around.without_dynamo import without_dynamo
from oomproof.trace.torch.gpu.detections import detections_filled
from oomproof.trace.torch.gpu.dialect import Dialect, dialect_in_force
from oomproof.trace.torch.gpu.samplers import samplers_filled
from oomproof.trace.torch.gpu.sparse_samplers import has_samplers, sparse_samplers
from oomproof.trace.torch.lbfgs_history import fill_history
from oomproof.trace.torch.ledger import Ledger
from oomproof.trace.torch.loop import Loop, Pieces
from oomproof.trace.torch.owner_tags import find_matchers, find_per_box
from oomproof.trace.torch.tracer import Tracer
from oomproof.trace.user_code import blaming_user_code


def trace_step(
    pieces: Pieces,
    training: Training,
    *,
    dialect: Dialect = "cuda",
    about: About | None = None,
    patience: int | None = None,
    validation: Validation | None = None,
    sparse: bool = False,
    progress: Progress = be_silent,
) -> Timeline:
    """``about`` is what the caller knows of the job; what the trace finds is added to it. With ``validation``, what
    comes after the step is traced in its place: weights, gradients and optimizer state are as the step leaves them.
    ``sparse``: detectors find no more than the annotated objects, in validation none."""
    known, asked = about or About(), Asked()

    def trace_once(told: Asked | None, known: About) -> Timeline:
        with (
            without_compiling() as compiled,
            without_dividing() as undivided,
            loaders_without_workers(),
            without_dynamo(),
            _steady_lifetimes(),
            _same_chance(),
            dialect_in_force(dialect),
        ):
            plain = replace(pieces, model=unwrap_factory(pieces.model, compiled))
            step = _trace(
                plain,
                training,
                told=told,
                dialect=dialect,
                about=known,
                patience=patience,
                validation=validation,
                sparse=sparse,
                progress=progress,
            )
            return replace(step, about=replace(step.about, notes=(*step.about.notes, *compiled, *undivided)))

    try:
        return trace_once(asked if dialect == "cuda" else None, known)
    except JobError as error:
        if not asked.line or isinstance(error, TooManyValues):
            raise
        # A GPU's way may lead to kernels that only a GPU has: the CPU's is better than none.
        try:
            return trace_once(None, replace(known, notes=(*known.notes, describe_other_way(asked.line, error))))
        except OomproofError:
            raise error from error.__cause__


def _trace(
    pieces: Pieces,
    training: Training,
    *,
    told: Asked | None,
    dialect: Dialect,
    about: About,
    patience: int | None,
    validation: Validation | None,
    sparse: bool,
    progress: Progress,
) -> Timeline:
    """``told``: Python code hears of a GPU, and the first line that asks is noted there."""
    with Tracer(patience, told=told) as tracer, blaming_user_code(), ExitStack() as tracing, tracing_threads(tracer):
        ledger = tracer.ledger
        progress("building the model")
        loop = Loop(_lend_model(pieces, tracing), training)
        _adopt_model(tracer, loop.model)
        ledger.put_on_gpu()
        tracer.know_weights(loop.model)
        ledger.name_modules(loop.model)
        ledger.mark_model(loop.model)
        tracing.enter_context(_marking_gradients(ledger, loop.model, training.gradients == "at_once"))
        progress("making a batch")
        loop.load()
        tracing.callback(loop.passes.release)  # the user may hand out one model for every trace
        loop.batch = _adopt_batch(tracer, loop.batch)
        ledger.put_on_gpu()
        if loop.average is not None:
            ledger.name_modules(loop.average, "(ema)")
            ledger.mark_model(loop.average, "(ema)")
        gc.collect()
        with sparse_samplers(loop.model) if sparse else _full(loop.model):
            if validation is not None:
                primed_at = None
                _leave_gradients(ledger, loop)
                progress("tracing the validation")
                ledger.start_validation()
                loop.validate(validation)
            elif pieces.step is None and training.gradients == "kept":
                primed_at, primed = _prime(ledger, loop)
                progress("tracing the step")
                ledger.start_step()
                with _gradients_watched(primed) as used:
                    loop.last_of_step()
                _mark_results(ledger, loop)
                for parameter in primed.keys() - used:  # no part in the loss: neither gradient nor state
                    ledger.erase(primed[parameter])
            else:
                primed_at = None
                for text in ("first", "second"):
                    progress(f"tracing the {text} step")
                    ledger.start_step()
                    loop.last_of_step(first=text == "first")
                    fill_history(loop.optimizer)
                    _mark_results(ledger, loop)
        timeline = ledger.build() if validation is None else _only_validation(ledger.build())
        model = type(loop.model).__name__
        whole = [call.separable for call in timeline.modules if call.path == model]
        found = replace(
            about,
            framework=f"torch {torch.__version__}",
            dialect=dialect,
            threads=torch.get_num_threads(),
            half_on_cpu=dialect == "cuda" or half_on_cpu(),
            values_asked=dict(tracer.demands),
            widened=sum(ledger.widened.values()),
            widened_by=_class_of(loop.model, max(ledger.widened, key=ledger.widened.__getitem__, default="")),
            batchnorms=count_batchnorms(loop.model),
            model=model,
            optimizer=type(loop.optimizer).__name__,
            at_once=at_once_for(loop.optimizer),
            on_host=sum(ledger.host.values()),
            full_samplers=not sparse and has_samplers(loop.model),
            matching=any(hasattr(module, "proposal_matcher") for module in loop.model.modules()),
            separable=bool(whole) and all(whole),
            per_box=find_per_box(timeline),
            matchers=find_matchers(timeline, model),
        )
        if training.precision != "fp32" and stays_wide(found, timeline):
            found = replace(found, notes=(*found.notes, describe_widening(found, training.precision)))
        timeline = replace(timeline, about=found)
    return timeline if primed_at is None else with_first_step(timeline, primed_at)


@contextmanager
def _full(model: torch.nn.Module) -> Iterator[None]:
    with samplers_filled(model), detections_filled(model):
        yield


def _lend_model(pieces: Pieces, tracing: ExitStack) -> Pieces:
    """The pieces with a model that is given back as it was, where it has lived before the trace."""

    def model() -> torch.nn.Module:
        lent = pieces.model()
        if isinstance(lent, torch.nn.Module) and not all(isinstance(each, FakeTensor) for each in lent.parameters()):
            tracing.enter_context(model_given_back(lent))
        return lent

    return replace(pieces, model=model)


def _prime(ledger: Ledger, loop: Loop) -> tuple[int, dict[torch.Tensor, list[int]]]:
    """Gradients and optimizer state as a step before would have left them; which blocks belong to which parameter."""
    primed_at = ledger.builder.ticks
    parameters = [p for group in loop.optimizer.param_groups for p in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter)
    _mark_results(ledger, loop)
    _update(loop.optimizer)
    _mark_results(ledger, loop)
    gc.collect()
    blocks = {parameter: [ledger.track(parameter.grad, "gradient")] for parameter in parameters}
    for parameter, state in loop.optimizer.state.items():
        blocks[parameter] += [ledger.track(t, "state") for t in state.values() if isinstance(t, torch.Tensor)]
    return primed_at, blocks


def _update(optimizer: torch.optim.Optimizer) -> None:
    """One update by gradients that are dense and made up, of which an optimizer of PyTorch's may want more."""
    try:
        optimizer.step()
    except (RuntimeError, TypeError, ValueError) as error:
        kind = type(optimizer)
        if not kind.__module__.startswith("torch.optim"):
            raise
        reason = str(error).splitlines()[0]
        wanted = "give the job a `step` of its own" if "closure" in reason else "take another"
        raise JobError(f"the job's optimizer, {kind.__name__}, makes no plain update: {reason}; {wanted}") from error


def _only_validation(traced: Timeline) -> Timeline:
    """Without what was there only while the optimizer made its state, which a run has long behind it."""
    start = int(traced.mark_tick[traced.mark_phase == PHASES.index("validation")][0])
    return replace(traced, bytes=np.where(traced.died <= start, 0, traced.bytes))


def _leave_gradients(ledger: Ledger, loop: Loop) -> None:
    """Gradients and optimizer state as the last step has left them; gradients that are used at once are gone."""
    _prime(ledger, loop)
    if loop.training.gradients == "at_once":
        loop.optimizer.zero_grad()
    gc.collect()


def _mark_results(ledger: Ledger, loop: Loop) -> None:
    ledger.mark_gradients(loop.model)
    ledger.mark_state(loop.optimizer, {id(parameter): owner for parameter, owner in _owners(loop.model).items()})


@contextmanager
def _marking_gradients(ledger: Ledger, model: torch.nn.Module, passing: bool) -> Iterator[None]:
    """For gradients that are gone when a step ends (``passing``); before the loop has hooks that use them."""
    owners = _owners(model) if passing else {}
    hooks = [
        parameter.register_post_accumulate_grad_hook(
            lambda parameter, owner=owner: ledger.mark(parameter.grad, "gradient", owner)
        )
        for parameter, owner in owners.items()
        if parameter.requires_grad
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _owners(model: torch.nn.Module) -> dict[torch.nn.Parameter, str]:
    return {
        parameter: path or type(module).__name__
        for path, module in model.named_modules()
        for parameter in own_parameters(module).values()
        if parameter is not None
    }


@contextmanager
def _gradients_watched(parameters: Iterable[torch.Tensor]) -> Iterator[set[torch.Tensor]]:
    """The parameters that backward brings a gradient to."""
    used: set[torch.Tensor] = set()
    trained = (parameter for parameter in parameters if parameter.requires_grad)  # optimizers may hold frozen ones
    hooks = [parameter.register_post_accumulate_grad_hook(used.add) for parameter in trained]
    try:
        yield used
    finally:
        for hook in hooks:
            hook.remove()


def _adopt_model(tracer: Tracer, model: torch.nn.Module) -> None:
    """Weights that came from a file or from NumPy are real; the step must see fake ones."""
    for module in model.modules():
        parameters, buffers = own_parameters(module), own_buffers(module)
        for name, parameter in parameters.items():
            if parameter is not None and not isinstance(parameter, FakeTensor):
                parameters[name] = torch.nn.Parameter(tracer.adopt(parameter.detach()), parameter.requires_grad)
        for name, buffer in buffers.items():
            if buffer is not None and not isinstance(buffer, FakeTensor):
                buffers[name] = tracer.adopt(buffer)


def _adopt_batch(tracer: Tracer, batch: Any) -> Any:
    """The batch with real tensors made fake; their values are kept."""
    return map_tensors(lambda tensor: tensor if isinstance(tensor, FakeTensor) else tracer.adopt(tensor), batch)


def _class_of(model: torch.nn.Module, path: str) -> str:
    return next((type(module).__name__ for name, module in model.named_modules() if name and name == path), "the step")


def count_batchnorms(model: torch.nn.Module) -> int:
    """Layers whose result for one image depends on the others of its batch."""
    return sum(isinstance(module, BatchNormBase) and module.training for module in model.modules())


@contextmanager
def _same_chance() -> Iterator[None]:
    """Jobs make up boxes and images at random: every trace of a job draws the same ones, whatever ran before it."""
    torch_state, numpy_state, python_state = torch.get_rng_state(), np.random.get_state(), random.getstate()
    torch.random.default_generator.manual_seed(0)  # not CUDA's, which is the user's
    np.random.seed(0)
    random.seed(0)
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        np.random.set_state(numpy_state)
        random.setstate(python_state)


@contextmanager
def _steady_lifetimes() -> Iterator[None]:
    """Cyclic garbage stays until the end, as it may in a real step; a collection in the middle would be luck. Nothing
    of the trace stays behind it."""
    enabled = gc.isenabled()
    gc.disable()
    gc.freeze()  # what was there before is not looked through again and again
    try:
        yield
    finally:
        left = find_leftovers()
        gc.unfreeze()
        let_go(left)
        if enabled:
            gc.enable()
