"""Overrides by ``config_util.merge_external_params_with_configs``: which fields a key stands for.

As in tf-models-research-object-detection 2.8.0.post1: any other key is passed over, with a line in the log.
"""

from __future__ import annotations

import ast
from typing import Any

from oomproof.errors import InputError
from oomproof.sources.tf_object_detection.config.config import Config
from oomproof.sources.tf_object_detection.script.config_so_far import KEYS, ConfigNode, Tracked, set_field
from oomproof.sources.tf_object_detection.script.folding import read_dotted_name
from oomproof.sources.tf_object_detection.script.known_values import UNNAMED, ScriptConstants

_GENERIC = ("graph_rewriter_config", "model", "train_input_config", "train_config", "eval_config")
_SINGLE = {
    "batch_size": "train_config.batch_size",
    "train_steps": "train_config.num_steps",
    "use_bfloat16": "train_config.use_bfloat16",
    "train_shuffle": "train_input_reader.shuffle",
    "eval_with_moving_averages": "eval_config.use_moving_averages",
    "retain_original_images_in_eval": "eval_config.retain_original_images",
}
_READERS = {
    "label_map_path": ("label_map_path", True),
    "mask_type": ("mask_type", True),
    "eval_shuffle": ("shuffle", False),
    "sample_1_of_n_eval_examples": ("sample_1_of_n_examples", False),
    "eval_num_epochs": ("num_epochs", False),
}
"""fields of all evaluation readers, and whether of the training's too"""
_RATES = {
    "constant_learning_rate": "learning_rate",
    "exponential_decay_learning_rate": "initial_learning_rate",
}


def override_by(tracked: Tracked, call: ast.Call, constants: ScriptConstants, file: str) -> None:
    """``merge_external_params_with_configs(configs, hparams, kwargs_dict)`` of a script."""
    _override_by_hparams(tracked, call, constants, file)
    given = next((each.value for each in call.keywords if each.arg == "kwargs_dict"), None)
    given = given or (call.args[2] if len(call.args) > 2 else None)
    if given is None and all(each.arg for each in call.keywords):
        return
    keys = _keys_of(given, constants)
    if keys is None:
        tracked.lost = f"{file}:{call.lineno}: the overrides are not known before the script runs"
        return
    _override_all(tracked, keys, constants, file, call)


def _override_all(
    tracked: Tracked, keys: dict[str, ast.expr], constants: ScriptConstants, file: str, call: ast.Call
) -> None:
    for key, value in keys.items():
        known, new = constants.evaluate(value)
        where = f"{file}:{getattr(value, 'lineno', call.lineno)}"
        if known and key != UNNAMED:
            override(tracked, key, new, where)
            continue
        note = f"{where}: {ast.unparse(value)} is not known before the script runs"
        tracked.notes.append(note)
        first, _, rest = key.partition(".")
        for path in paths_for(tracked.config, key) or [f"{KEYS.get(first, first)}.{rest}"]:
            tracked.open[path] = note
        if key == UNNAMED:
            tracked.lost = note


def _override_by_hparams(tracked: Tracked, call: ast.Call, constants: ScriptConstants, file: str) -> None:
    """``HParams(batch_size=4)``, which TensorFlow 1 has; ``create_hparams()`` of the API holds nothing of its own."""
    given = next((each.value for each in call.keywords if each.arg == "hparams"), None)
    given = given or (call.args[1] if len(call.args) > 1 else None)
    if given is None or constants.evaluate(given) == (True, None):
        return
    made = constants.calls.get(read_dotted_name(given), given)
    name = read_dotted_name(made.func).rpartition(".")[2] if isinstance(made, ast.Call) else ""
    if isinstance(made, ast.Call) and name == "HParams" and not made.args and all(each.arg for each in made.keywords):
        _override_all(tracked, {str(each.arg): each.value for each in made.keywords}, constants, file, call)
    elif not (isinstance(made, ast.Call) and name == "create_hparams" and not _overrides_of(made, constants)):
        tracked.lost = f"{file}:{call.lineno}: what {ast.unparse(given)} overrides is not known before the script runs"


def _overrides_of(call: ast.Call, constants: ScriptConstants) -> bool:
    """Whether ``create_hparams(overrides)`` gets any, as far as is known."""
    every = [*call.args, *(each.value for each in call.keywords)]
    return any(constants.evaluate(each) not in ((True, None), (True, "")) for each in every)


def _keys_of(given: ast.expr | None, constants: ScriptConstants) -> dict[str, ast.expr] | None:
    """What a dictionary of the script says of each key; None where that is not known."""
    match given:
        case ast.Dict():
            return {constants.read_key(key): value for key, value in zip(given.keys, given.values, strict=True)}
        case ast.Call(func=ast.Name(id="dict"), args=[]):
            return {each.arg or UNNAMED: each.value for each in given.keywords}
        case ast.Name() | ast.Attribute():
            return constants.dictionaries.get(read_dotted_name(given))
    return None


def override(tracked: Tracked, key: str, value: Any, where: str) -> None:
    """One key with its value put over the config."""
    if value == "" or value is None:
        return
    config = tracked.config
    paths = paths_for(config, key)
    if paths:
        for path in paths:
            many = path.endswith("input_path") and isinstance(value, str)
            set_field(ConfigNode(tracked, path), [value] if many else value, where, key)
    elif key == "learning_rate":
        _set_rate(tracked, value, where)
    elif key.partition(".")[0] in _GENERIC and "." in key:
        first, _, rest = key.partition(".")
        _set_generic(tracked, f"{KEYS[first]}.{rest}", value, where)
    else:
        tracked.notes.append(f"{where}: {key} does nothing: config_util has no such override and passes over it")


def _set_generic(tracked: Tracked, path: str, value: Any, where: str) -> None:
    try:
        is_set = tracked.config.is_set(path)
    except InputError:
        is_set = True  # it does not exist, which set_field says
    if is_set:
        set_field(ConfigNode(tracked, path), value, where, path)
    else:
        tracked.notes.append(
            f"{where}: {path} cannot be overridden: config_util stops with a ValueError at what the file does not set"
        )


def paths_for(config: Config, key: str) -> list[str]:
    """The fields that a short key stands for."""
    readers = [f"eval_input_reader[{number}]" for number in range(len(config.value("eval_input_reader")))]
    if key in _SINGLE:
        return [_SINGLE[key]]
    if key in _READERS:
        name, training = _READERS[key]
        return [f"{reader}.{name}" for reader in [*(["train_input_reader"] if training else []), *readers]]
    if key == "num_classes":
        model = config.which("model")
        return [f"model.{model}.num_classes"] if model in ("ssd", "faster_rcnn") else []
    if key in ("train_input_path", "eval_input_path"):
        homes = ["train_input_reader"] if key.startswith("train") else readers[:1]
        return [f"{reader}.tf_record_input_reader.input_path" for reader in homes]
    if key == "momentum_optimizer_value":
        optimizer = config.which("train_config.optimizer")
        return [f"train_config.optimizer.{optimizer}.{key}"] if optimizer != "adam_optimizer" and optimizer else []
    return []


def _set_rate(tracked: Tracked, value: Any, where: str) -> None:
    """The learning rate of the schedule there is; a warm-up keeps its ratio."""
    config = tracked.config
    rate = f"train_config.optimizer.{config.which('train_config.optimizer')}.learning_rate"
    schedule = config.which(rate) if config.which("train_config.optimizer") else ""
    if schedule in _RATES:
        set_field(ConfigNode(tracked, f"{rate}.{schedule}.{_RATES[schedule]}"), value, where, "learning_rate")
    elif schedule == "cosine_decay_learning_rate" and isinstance(value, (int, float)):
        base, warm = f"{rate}.{schedule}.learning_rate_base", f"{rate}.{schedule}.warmup_learning_rate"
        ratio = config.value(warm) / config.value(base) if config.value(base) else 0.0
        set_field(ConfigNode(tracked, base), value, where, "learning_rate")
        set_field(ConfigNode(tracked, warm), ratio * value, where, "learning_rate")
    else:
        tracked.notes.append(f"{where}: learning_rate is not followed here for the schedule {schedule or 'none'}")
