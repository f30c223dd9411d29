"""timm models by name, trained as timm's train.py does by default: SGD with momentum, label smoothing, fp32."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from oomproof.errors import InputError, did_you_mean
from oomproof.sources.job import Setting, Settings
from oomproof.sources.torch.job import TorchJob
from oomproof.sources.torch.named import NamedJob, batch_setting, size_setting

_BATCH = 128
"""train.py's --batch-size"""
_SMOOTHING = 0.1


def open_timm(name: str) -> NamedJob:
    timm = _timm()
    base = name.split(".", maxsplit=1)[0]
    known = timm.list_models()
    if base not in known:
        raise InputError(f"timm {timm.__version__} has no model '{name}'{did_you_mean(base, known)}")
    config = timm.get_pretrained_cfg(name)
    size = tuple(config.input_size[1:]) if config is not None else (224, 224)
    classes = (config.num_classes if config is not None else 0) or 1000
    return NamedJob(
        name=f"timm:{name}",
        own=(
            batch_setting(_BATCH),
            size_setting(size),
            Setting("classes", classes, "number of classes"),
            Setting("drop_path", 0.0, "stochastic depth, --drop-path of train.py"),
        ),
        make=lambda settings: _pieces(name, settings),
        code=lambda settings: _code(name, settings),
        mean_over_images=True,
    )


def _pieces(name: str, settings: Settings) -> TorchJob:
    import torch
    from timm.loss import LabelSmoothingCrossEntropy

    height, width = settings["image_size"]
    channels = _channels(name)

    def loss(model: Any, batch: Any) -> Any:
        return LabelSmoothingCrossEntropy(_SMOOTHING)(model(batch[0]), batch[1])

    return TorchJob(
        model=lambda: _timm().create_model(name, pretrained=False, **_arguments(name, settings)),
        batch=lambda: (
            torch.rand(settings["batch"], channels, height, width),
            torch.randint(0, settings["classes"], (settings["batch"],)),
        ),
        loss=loss,
        optimizer=lambda parameters: torch.optim.SGD(
            parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=2e-5
        ),
        mean_over_images=True,
    )


def _arguments(name: str, settings: Settings) -> dict[str, Any]:
    timm = _timm()
    config = timm.get_pretrained_cfg(name)
    found: dict[str, Any] = {"num_classes": settings["classes"]}
    if settings["drop_path"]:
        found["drop_path_rate"] = settings["drop_path"]
    size = tuple(settings["image_size"])
    if config is not None and size != tuple(config.input_size[1:]) and _has_fixed_size(name):
        found["img_size"] = size
    return found


def _has_fixed_size(name: str) -> bool:
    """Transformers are built for a size; convolutions take any."""
    module = inspect.getmodule(_timm().model_entrypoint(name.split(".", maxsplit=1)[0]))
    return module is not None and "img_size" in inspect.getsource(module)


def _channels(name: str) -> int:
    config = _timm().get_pretrained_cfg(name)
    return int(config.input_size[0]) if config is not None else 3


def _code(name: str, settings: Settings) -> Sequence[str]:
    given = "".join(f", {key}={value!r}" for key, value in _arguments(name, settings).items())
    return [
        "import timm",
        "import torch",
        "",
        f"model = timm.create_model({name!r}{given})",
        "criterion = timm.loss.LabelSmoothingCrossEntropy(0.1)",
        "loss = lambda model, batch: criterion(model(batch[0]), batch[1])",
    ]


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        raise InputError(
            "timm: jobs need timm, which is not installed here: pip install 'oomproof[timm]', or timm>=1.0"
        ) from error
    return timm
