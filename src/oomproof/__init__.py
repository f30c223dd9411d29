"""oomproof forecasts the GPU memory of a training job without a GPU, and finds the settings that fit.

    import oomproof

    forecast = oomproof.check("torchvision:maskrcnn_resnet50_fpn", on="RTX 3060", batch=2)
    forecast.outcome            # 'fits', 'at risk' or 'does not fit'
    forecast.on_device.high     # bytes, the upper figure of what nvidia-smi will show

    plan = oomproof.fit("torchvision:maskrcnn_resnet50_fpn", on="RTX 3060", batch=16)
    step = oomproof.Step(model, optimizer, loss, plan)      # trains as planned: step(batch)

Every public name is here and is imported when it is first used, so that ``import oomproof`` loads no framework.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oomproof.api.check import check, sweep
    from oomproof.api.explain import explain
    from oomproof.api.fit import fit
    from oomproof.api.measure import measure
    from oomproof.api.slim import slim
    from oomproof.changes.settings_file import read_settings
    from oomproof.changes.torch.accumulate import accumulate
    from oomproof.changes.torch.recompute import recompute
    from oomproof.changes.torch.step import Step
    from oomproof.data.annotations.dataset import Dataset
    from oomproof.data.annotations.read import read_dataset
    from oomproof.diagnosis.diagnosis import Diagnosis
    from oomproof.errors import DamagedFile, InputError, JobError, OomproofError, OutOfMemory, Unanswerable
    from oomproof.memory.batch_rule import BatchRule
    from oomproof.memory.batch_spec import ImageSpec
    from oomproof.memory.forecast import Forecast
    from oomproof.memory.settings import Settings
    from oomproof.memory.timeline import Timeline
    from oomproof.plan.plan import Plan
    from oomproof.run.guard.guard import Guard
    from oomproof.sources.job import Job, Knob, Option, Setting
    from oomproof.sources.keras.job import KerasJob
    from oomproof.sources.source import Opening, Source
    from oomproof.sources.tensorflow.job import TensorFlowJob
    from oomproof.sources.torch.job import TorchJob
    from oomproof.trace.request import TraceRequest

__version__ = "0.1.0"

__all__ = [
    "BatchRule",
    "DamagedFile",
    "Dataset",
    "Diagnosis",
    "Forecast",
    "Guard",
    "ImageSpec",
    "InputError",
    "Job",
    "JobError",
    "KerasJob",
    "Knob",
    "OomproofError",
    "Opening",
    "Option",
    "OutOfMemory",
    "Plan",
    "Setting",
    "Settings",
    "Source",
    "Step",
    "TensorFlowJob",
    "Timeline",
    "TorchJob",
    "TraceRequest",
    "Unanswerable",
    "__version__",
    "accumulate",
    "check",
    "explain",
    "fit",
    "measure",
    "read_dataset",
    "read_settings",
    "recompute",
    "slim",
    "sweep",
    "what_if",
]

_HOME = {
    "BatchRule": "oomproof.memory.batch_rule",
    "DamagedFile": "oomproof.errors",
    "Dataset": "oomproof.data.annotations.dataset",
    "Diagnosis": "oomproof.diagnosis.diagnosis",
    "Forecast": "oomproof.memory.forecast",
    "Guard": "oomproof.run.guard.guard",
    "ImageSpec": "oomproof.memory.batch_spec",
    "InputError": "oomproof.errors",
    "Job": "oomproof.sources.job",
    "JobError": "oomproof.errors",
    "KerasJob": "oomproof.sources.keras.job",
    "Knob": "oomproof.sources.job",
    "OomproofError": "oomproof.errors",
    "Opening": "oomproof.sources.source",
    "Option": "oomproof.sources.job",
    "OutOfMemory": "oomproof.errors",
    "Plan": "oomproof.plan.plan",
    "Setting": "oomproof.sources.job",
    "Settings": "oomproof.memory.settings",
    "Source": "oomproof.sources.source",
    "Step": "oomproof.changes.torch.step",
    "TensorFlowJob": "oomproof.sources.tensorflow.job",
    "Timeline": "oomproof.memory.timeline",
    "TorchJob": "oomproof.sources.torch.job",
    "TraceRequest": "oomproof.trace.request",
    "Unanswerable": "oomproof.errors",
    "accumulate": "oomproof.changes.torch.accumulate",
    "check": "oomproof.api.check",
    "explain": "oomproof.api.explain",
    "fit": "oomproof.api.fit",
    "measure": "oomproof.api.measure",
    "read_dataset": "oomproof.data.annotations.read",
    "read_settings": "oomproof.changes.settings_file",
    "recompute": "oomproof.changes.torch.recompute",
    "slim": "oomproof.api.slim",
    "sweep": "oomproof.api.check",
    "what_if": "oomproof.api.what_if",
}


_MODULES = {
    name: f"oomproof.run.{name}" for name in ("detectron2", "keras", "lightning", "transformers", "ultralytics")
}
"""what trainings with these frameworks use: oomproof.detectron2.GuardHook, oomproof.lightning.Guard"""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        return import_module(_MODULES[name])
    if name not in _HOME:
        raise AttributeError(f"module 'oomproof' has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(_HOME[name]), name)
    if "IPython" in sys.modules:
        import_module("oomproof.page.notebook").show_in_notebooks()
    return found


def __dir__() -> list[str]:
    return __all__
