"""What ``oomproof run pipeline.config`` trains, as a Job: what the API lacks is settings and knobs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oomproof.changes.tf_object_detection.shares import why_not_exact
from oomproof.errors import InputError
from oomproof.memory.about import About
from oomproof.memory.batch_spec import BatchSpec
from oomproof.memory.cards.devices import Device
from oomproof.sources.job import Knob, Option, Setting, Settings
from oomproof.sources.micro_batch import micro_batch
from oomproof.sources.tf_object_detection.fields import BATCH, has_mask_head, has_tasks
from oomproof.sources.tf_object_detection.job import ObjectDetectionJob
from oomproof.sources.tf_object_detection.planned_values import find_planned_values
from oomproof.trace.tf_object_detection.request import StepRequest

FULL, HALF = "float32", "mixed_float16"
_OF_THE_CONFIG = ("load_instance_masks", "unpad_groundtruth_tensors")
"""fields that may change: nothing that is learnt hangs on them"""


class RunJob(ObjectDetectionJob):
    """``batch_size`` is here the images of a micro-batch, of all GPUs together; an update has ``accumulate`` times as
    many."""

    @property
    def settings(self) -> tuple[Setting, ...]:
        return (
            *super().settings,
            Setting("accumulate", 1, "micro-batches of an update"),
            Setting("recompute", False, "blocks of the feature extractor are computed again in the backward pass"),
            Setting("precision", FULL, "what layers compute in; float16 scales the loss", (FULL, HALF)),
        )

    @property
    def whole_batch(self) -> int:
        """Images of an update."""
        return int(self.config.value("train_config.batch_size"))

    @property
    def steps(self) -> int:
        """0: the config does not say."""
        return int(self.config.value("train_config.num_steps") or 0)

    @property
    def norms_are_frozen(self) -> bool:
        """Whether batch normalisation uses its running statistics alone."""
        model = self.config.which("model")
        if model == "ssd":
            return bool(self.config.value("model.ssd.freeze_batchnorm"))
        trained = "model.faster_rcnn.feature_extractor.batch_norm_trainable"
        return model == "faster_rcnn" and not self.config.value(trained)

    def text_for(self, settings: Settings) -> str:
        """The config with what a plan changed of it; its batch stays whole."""
        changed = {name: value for name, value in settings.items() if name != BATCH}
        return self.config.with_values(find_planned_values(self.config, changed)).text

    def step_request(
        self, settings: Mapping[str, Any], device: Device | None = None, batch: BatchSpec | None = None
    ) -> StepRequest:
        request = super().step_request({**settings, BATCH: self.whole_batch}, device, batch)
        images = settings[BATCH] // settings["gpus"] if batch is None else request.batch
        return replace(
            request,
            batch=images,
            boxes=request.boxes[:images],
            run=True,
            accumulate=settings["accumulate"],
            half=settings["precision"] == HALF,
            recompute=settings["recompute"],
        )

    def knobs(self, settings: Settings, about: About) -> tuple[Knob, ...]:
        found = [knob for knob in super().knobs(settings, about) if knob.name in _OF_THE_CONFIG]
        if not settings["recompute"]:
            why = "blocks of the feature extractor are computed again in the backward pass, from the same numbers"
            found.append(Knob("recompute", _options("recompute", False, True), "identical", why))
        cut = micro_batch(settings, about, mean_over_images=True, by="adding up gradients, applied once")
        if cut is not None:
            found.append(self._promise(cut, settings, about))
        if settings["precision"] == FULL:
            why = "Keras's own policy: weights stay float32, layers compute in 16 bits, the loss is scaled"
            options = _options("precision", FULL, HALF)
            found.append(Knob("precision", options, "equivalent", why, role="precision"))
        return tuple(found)

    def _promise(self, cut: Knob, settings: Settings, about: About) -> Knob:
        """Gradients are those of the whole batch, by its own counts, where nothing else mixes its images. Micro-batches
        must be shared by the GPUs as batches are."""
        reasons = self.why_not_exact()
        options = tuple(each for each in cut.options if each.settings[BATCH] % settings["gpus"] == 0)
        if about.batchnorms:
            return replace(cut, options=options)
        why = "; ".join(reasons) or "gradients are weighed by what the losses of the whole batch are divided by"
        return replace(cut, options=options, promise="equivalent" if reasons else "identical", why=why)

    def why_not_exact(self) -> tuple[str, ...]:
        config, model = self.config, self.config.which("model")
        return why_not_exact(
            model,
            masks=has_mask_head(config),
            several_tasks=has_tasks(config),
            draws=model == "ssd" and (config.is_set("model.ssd.loss.random_example_sampler") or self._drops_out()),
        )

    def _drops_out(self) -> bool:
        """A convolutional_box_predictor does by default. EfficientNet always drops blocks (drop_connect_rate 0.2)."""
        if "efficientnet" in self.config.value("model.ssd.feature_extractor.type"):
            return True
        head = self.config.which("model.ssd.box_predictor")
        with contextlib.suppress(InputError):  # there are heads without such a field
            return bool(head and self.config.value(f"model.ssd.box_predictor.{head}.use_dropout"))
        return False


def _options(name: str, *values: Any) -> tuple[Option, ...]:
    return tuple(Option(value, {name: value}) for value in values)
