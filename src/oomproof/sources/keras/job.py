"""A Keras training job: a compiled model and what it is trained on. docs/keras.md shows how to write one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from oomproof.data.pipeline.buffers import Pipeline
from oomproof.data.pipeline.stages import Assumed
from oomproof.errors import InputError, JobError
from oomproof.memory.about import About
from oomproof.memory.batch_rule import BatchRule
from oomproof.memory.timeline import Timeline
from oomproof.sources.job import ASSUMED, Knob, Setting, Settings, TraceRequest
from oomproof.sources.keras.compiled import MaybeCompiled
from oomproof.sources.keras.installed import backend_now, is_model, keras_on
from oomproof.sources.keras.training import batch_setting, size_setting, training_settings
from oomproof.trace.user_code import blaming_user_code


@dataclass(frozen=True)
class KerasJob(MaybeCompiled):
    """What is trained: a compiled Keras model, or a function that makes one, and its data.

        KerasJob(model=make_model, data=dataset)                        # dataset: a batched tf.data.Dataset
        KerasJob(model=model, data=(images, labels), batch=16)          # arrays or TensorSpecs of any length
        KerasJob(model=model, data=photos)                              # a PyDataset, or a function with yield

    Only shapes and types of the data are used; no step is run. A PyDataset, a list of batches or a function that
    yields them is asked for its first. Without data, a batch is made up from the model's inputs, its outputs and its
    loss.
    """

    model: Any
    data: Any = None
    batch: int = 0
    """images a step; 0: as the data have it, else 32, which is Keras's own default"""
    name: str = "job"
    extra_knobs: tuple[Knob, ...] = ()
    """more that may change to save memory; they win over what oomproof finds under the same name"""
    assumed: tuple[str, ...] = ()
    """what was taken for granted, told beside a forecast"""
    host: Assumed | None = None
    """what counts where a tf.data pipeline does not say how large something is: Assumed(side=1024, elements=118_287)"""

    def __post_init__(self) -> None:
        if not callable(self.model):
            raise InputError(
                "KerasJob(model=...) must be a compiled Keras model or a function that returns one; it is of type "
                f"{type(self.model).__name__}"
            )

    @property
    def step(self) -> None:
        """Keras steps by itself."""
        return None

    @cached_property
    def made(self) -> Any:
        """The model, compiled; a function's is made anew for each trace, and once for questions about it."""
        return self._make()

    def _make(self) -> Any:
        keras_on()
        if is_model(self.model):
            model = self.model
        else:
            with blaming_user_code():
                model = self.model()
        if not is_model(model):
            raise JobError(
                f"{self.name}: KerasJob(model=...) must give a compiled Keras model; it gave a {type(model).__name__}"
            )
        from oomproof.changes.keras.recompile import arguments

        arguments(model)  # refuses a model that is not compiled
        return model

    def with_batch(self, images: int) -> KerasJob:
        """The same with so many images a step, where neither the job nor its data say how many."""
        from oomproof.sources.keras.batch import comes_in_batches

        return self if self.batch or comes_in_batches(self.data) else replace(self, batch=images)

    @cached_property
    def example(self) -> Any:
        """What is known of one batch of the data."""
        from oomproof.sources.keras.batch import example_of

        keras_on()
        with blaming_user_code():
            return example_of(self.data)

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        keras_on()
        from oomproof.changes.keras.recompile import accumulation
        from oomproof.sources.keras.batch import USUAL, choose_image_size, find_batch_size

        said = self.batch or find_batch_size(self.data, self.example)
        own = [batch_setting(said or USUAL, "" if said else ASSUMED)]
        if (size := choose_image_size(self.made, self.example)) is not None:
            own.append(size_setting(size, _basis_of_size(self.made, self.data)))
        return (*own, *training_settings({"accumulate": accumulation(self.made)}), *self._sizes)

    @cached_property
    def _sizes(self) -> tuple[Setting, ...]:
        """The sizes of a tf.data pipeline."""
        if not hasattr(self.data, "element_spec"):
            return ()
        from oomproof.data.pipeline.walk import read
        from oomproof.sources.keras.pipeline_knobs import pipeline_settings

        with blaming_user_code():
            return pipeline_settings(read(self.data)[0])

    def batch_rule(self, settings: Settings) -> BatchRule:
        from oomproof.sources.keras.batch import choose_image_size

        size = settings.of("image size")
        if not isinstance(size, tuple):  # a parameter of the user's own, mostly one number; the model was built with it
            size = choose_image_size(self.made, self.example)
        words = "Keras trains on images of one size" + (f", {size[0]}x{size[1]}" if size else "")
        return BatchRule(settings.images, words, size=size, same=True)

    def _pipeline(self, settings: Settings) -> Pipeline | None:
        """The data in host memory. A plan's micro-batches are cut from batches as large as before."""
        from oomproof.changes.keras.recompile import accumulation
        from oomproof.data.pipeline.describe import pipeline_of_data
        from oomproof.sources.keras.batch import batch_size

        own, present = batch_size(self.data, self.example), accumulation(self.made)
        images = own  # where the batch is a parameter of the user's function, the data have it already
        if "batch" in settings:
            images = max(1, settings["batch"] * settings.get("accumulate", present) // present)
        sizes = {each.name: settings[each.name] for each in self._sizes if each.name in settings}
        with blaming_user_code():
            return pipeline_of_data(
                self.data, self.host, example=self.example, times=images / own, batch=images, sizes=sizes
            )

    def _describe_data(self, settings: Settings) -> dict[str, Any]:
        """The fields of About that the data decide."""
        from oomproof.data.pipeline.describe import describe_pipeline
        from oomproof.sources.keras.pipeline_knobs import advise_on_buffers

        pipeline = self._pipeline(settings)
        if pipeline is None:
            return {}
        found = describe_pipeline(pipeline)
        return {**found, "notes": (*found["notes"], *advise_on_buffers(pipeline))}

    def price_data(self, settings: Settings) -> Callable[[Settings], Mapping[str, Any]]:
        return self._describe_data

    def trace(self, request: TraceRequest) -> Timeline:
        request.refuse_batch(self.name)
        request.refuse_validation(self.name)
        settings = request.settings
        backend = settings.get("backend") or backend_now()
        keras_on(backend)
        from oomproof.changes.keras.applying import compiled_for
        from oomproof.sources.keras.batch import batch_of, batch_size
        from oomproof.sources.keras.model_facts import describe_loss
        from oomproof.sources.keras.notes import notes_of
        from oomproof.sources.keras.tracers import trace_model
        from oomproof.sources.keras.xla import XlaChoice, way_of

        images = int(settings.get("batch") or self.batch or batch_size(self.data, self.example))
        way = XlaChoice(None, ()) if backend == "torch" else way_of(self.made, settings, request.device)
        data = self._describe_data(settings)  # asks the model how it accumulates, which is changed below
        with compiled_for(self.made, settings) as model:
            notes = (*way.notes, *notes_of(model, settings, self.assumed, backend), *data.get("notes", ()))
            known = describe_loss(model, About(job=self.name, settings=settings))
            about = replace(known, **{**data, "notes": notes})  # XLA is among the notes
            with blaming_user_code():
                batch = batch_of(model, self.example, images, settings.get("image_size"))
                return trace_model(model, batch, way, backend=backend, about=about, request=request)

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        from oomproof.sources.keras.knobs import training_knobs
        from oomproof.sources.keras.pipeline_knobs import pipeline_knobs

        pipeline = self._pipeline(settings) if self._sizes else None
        found = (*training_knobs(settings, about), *(pipeline_knobs(pipeline) if pipeline else ()))
        names = {knob.name for knob in self.extra_knobs}
        return (*(knob for knob in found if knob.name not in names), *self.extra_knobs)

    @property
    def place(self) -> Path:
        raise InputError("a KerasJob made in Python has no file of its own: say where its settings should go")

    def training_code(self, settings: Settings, path: Path, changes: Sequence[str]) -> Sequence[str]:
        from oomproof.sources.keras.training_code import write_training_code

        return write_training_code(settings, path, ["model = ...  # compiled, as the job has it"], changes)


def _basis_of_size(model: Any, data: Any) -> str:
    """Whether the model is built for one size, takes what its data have, or takes any and nobody has said which."""
    from oomproof.changes.keras.applying import find_image_size

    if find_image_size(model) is not None:
        return "the model's own"
    return "" if data is not None else ASSUMED
