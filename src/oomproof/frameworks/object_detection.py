"""The TensorFlow Object Detection API, made importable beside today's TensorFlow. Nothing is changed on disk.

Made for tf-models-research-object-detection 2.8.0.post1 of the package registry, the API's last release, whose code is
of 2022; tried with TensorFlow 2.21, protobuf 7.36 and tf-keras 2.21. ``import_api`` changes what ``keras`` means for
the whole process, so it belongs into a process of its own (trace/tf_object_detection/child.py).
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from oomproof.errors import InputError
from oomproof.frameworks.quiet import silent

PACKAGES = (
    "tf-keras==2.21.0", "tf-models-research-object-detection==2.8.0.post1", "tf-models-official==2.20.0",
    "tf-slim==1.1.0", "gin-config==0.5.0",
)  # fmt: skip
"""installed without what they depend on, which would bring another TensorFlow. What they import beyond these is for
evaluation and is left out (``_leave_out``)"""
INSTALL = f"pip install --no-deps {' '.join(PACKAGES)}"
_PROTOS = "object_detection.protos."
_UNUSED = ("jax", "pandas")
"""what TensorFlow and Keras 2 import where it is there, and can do without: seconds, and nothing a step needs"""
_LAYERS = ("", ".base", ".convolutional", ".core", ".normalization", ".pooling")


def missing_packages() -> tuple[str, ...]:
    """Packages without which the API cannot be imported; nothing is imported to find out."""
    names = [each.partition("==")[0] for each in PACKAGES]
    found = [name for name in names if not _is_installed(name)]
    if not (_is_installed("tensorflow") or _is_installed("tensorflow-cpu")):
        found.insert(0, "tensorflow")
    return tuple(found)


def require_api(what: str) -> None:
    """InputError where something is missing, with what installs it."""
    lacking = missing_packages()
    if lacking:
        first = "pip install 'oomproof[tensorflow]', then " if "tensorflow" in lacking else ""
        raise InputError(
            f"{what} needs the TensorFlow Object Detection API ({', '.join(lacking)} "
            f"{'is' if len(lacking) == 1 else 'are'} not installed here): {first}{INSTALL}"
        )


def before_api() -> None:
    """To be called before TensorFlow is imported, which would bring Keras 3, matplotlib and JAX: seconds."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"  # tf.keras is Keras 2, which the API was written for
    for name in _UNUSED:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # None makes its import fail


def import_api(*, tensorflow_1: bool) -> Any:
    """TensorFlow, with everything in place for ``import object_detection``. ``tensorflow_1``: for its older models,
    which are graphs of TensorFlow 1; a process has one of the two."""
    before_api()
    import numpy as np

    with silent():
        import tensorflow as tf

    for name, kind in (("int", int), ("float", float), ("bool", bool), ("object", object)):
        if name not in vars(np):  # removed in NumPy 1.24
            setattr(np, name, kind)
    sys.meta_path.insert(0, _Protos())
    _replace_keras()
    _use_old_optimizers(tf)
    _add_estimator(tf)
    _add_control_flow(tf)
    if importlib.util.find_spec("tensorflow_io") is None:  # for one of the API's models that is not forecast
        _add_module("tensorflow_io")
    if tensorflow_1:
        _use_tensorflow_1(tf)
    _find_slim_nets()
    _leave_out()
    return tf


class _Protos(importlib.abc.MetaPathFinder):
    """Messages of the API in a form that today's protobuf takes."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not (name.startswith(_PROTOS) and name.endswith("_pb2")):
            return None
        package = importlib.util.find_spec(_PROTOS[:-1])
        for folder in (package.submodule_search_locations or ()) if package else ():
            file = Path(folder) / f"{name.removeprefix(_PROTOS)}.py"
            if file.is_file():
                return importlib.machinery.ModuleSpec(name, _ProtoLoader(file), origin=str(file))
        return None


class _ProtoLoader(importlib.abc.Loader):
    """The files were written by protoc before 3.19, which protobuf 4 and later refuse ("Descriptors cannot be created
    directly"). The description of the messages is in them all the same, as one text of bytes."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        builder = importlib.import_module("google.protobuf.internal.builder")
        pool = importlib.import_module("google.protobuf.descriptor_pool")
        tree = ast.parse(self.file.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("object_detection"):
                for each in node.names:
                    importlib.import_module(f"{node.module}.{each.name}")
        described = pool.Default().AddSerializedFile(_description(tree))
        names = vars(module)
        names["DESCRIPTOR"] = described
        builder.BuildMessageAndEnumDescriptors(described, names)
        builder.BuildTopDescriptorsAndMessages(described, module.__name__, names)


def _description(tree: ast.AST) -> bytes:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "serialized_pb":
            return bytes(ast.literal_eval(node.value))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "AddSerializedFile":
            return bytes(ast.literal_eval(node.args[0]))
    raise ImportError("a file of object_detection.protos describes no messages")


def _replace_keras() -> None:
    """The API imports parts of ``keras`` and means Keras 2."""
    keras = importlib.import_module("tf_keras")
    resnet = importlib.import_module("tf_keras.applications.resnet")
    # CenterNet's ResNet-18 and 34 are made by it; Keras 2.13 and later keep it private.
    vars(resnet)["ResNet"] = importlib.import_module("tf_keras.src.applications.resnet").ResNet
    sys.modules.update({"keras": keras, "keras.applications": keras.applications, "keras.applications.resnet": resnet})


def _use_old_optimizers(tf: Any) -> None:
    """Those of 2022, whose arguments the API gives: Keras 2.11 put others in their place."""
    for name in ("SGD", "Adam", "RMSprop"):
        setattr(tf.keras.optimizers, name, getattr(tf.keras.optimizers.legacy, name))


def _add_estimator(tf: Any) -> None:
    """Gone since TensorFlow 2.16. The API's training function names it, and hands its graph back in one of these."""
    modes = types.SimpleNamespace(TRAIN="train", EVAL="eval", PREDICT="infer")
    made = _add_module(
        "tensorflow.compat.v1.estimator",
        ModeKeys=modes,
        EstimatorSpec=types.SimpleNamespace,
        Estimator=object,
        tpu=types.SimpleNamespace(),
    )
    tf.compat.v1.estimator = made


def _add_control_flow(tf: Any) -> None:
    """tf_slim 1.1, which decodes records, looks for these where TensorFlow had them before 2.12."""
    module = importlib.import_module("tensorflow.python.ops.control_flow_ops")
    for name in ("case", "cond", "while_loop"):
        if not hasattr(module, name):
            setattr(module, name, getattr(tf.compat.v1, name))


class _HParams(types.SimpleNamespace):
    """In place of the one in tf.contrib: how NASNet and PNASNet are built."""

    def set_hparam(self, name: str, value: Any) -> None:
        setattr(self, name, value)


def _use_tensorflow_1(tf: Any) -> None:
    v1 = tf.compat.v1
    v1.disable_v2_behavior()
    v1.enable_resource_variables()
    v1.enable_control_flow_v2()

    def refuse(*_: Any, **__: Any) -> None:
        raise NotImplementedError("bipartite matching needs tf.contrib of TensorFlow 1")

    for name in ("", ".image", ".image.python", ".image.python.ops"):
        _add_module(f"tensorflow.contrib{name}")
    ops = _add_module("tensorflow.contrib.image.python.ops.image_ops", bipartite_match=refuse)
    vars(sys.modules["tensorflow.contrib.image.python.ops"])["image_ops"] = ops
    vars(sys.modules["tensorflow.contrib"]).update(
        opt=_add_module("tensorflow.contrib.opt", MovingAverageOptimizer=_make_averaging_optimizer(tf)),
        training=_add_module("tensorflow.contrib.training", HParams=_HParams),
    )
    # tf_slim 1.1 looks for these where TensorFlow had them before 2.5 and 2.14.
    vars(importlib.import_module("tensorflow.python.framework.ops")).update(
        IndexedSlices=tf.IndexedSlices, Tensor=tf.Tensor
    )
    # TensorFlow's own layers, which tf_slim uses, look for these at their old place (TensorFlow 2.21).
    for part in _LAYERS:
        sys.modules[f"tf_keras.legacy_tf_layers{part}"] = importlib.import_module(
            f"tf_keras.src.legacy_tf_layers{part}"
        )


def _make_averaging_optimizer(tf: Any) -> Any:
    """In place of the one in tf.contrib: after the update of an optimizer, the averages of what it updated."""
    v1 = tf.compat.v1

    def begin(self: Any, opt: Any, average_decay: float = 0.9999, **_: Any) -> None:
        v1.train.Optimizer.__init__(self, False, "MovingAverage")
        self.inner, self.average = opt, v1.train.ExponentialMovingAverage(average_decay)

    def compute_gradients(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.inner.compute_gradients(*args, **kwargs)

    def apply_gradients(self: Any, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> Any:
        pairs = list(grads_and_vars)
        update = self.inner.apply_gradients(pairs, global_step, name)
        with tf.control_dependencies([update]):
            return tf.group(update, self.average.apply([variable for _, variable in pairs]))

    methods: dict[str, Any] = {
        "__init__": begin,
        "compute_gradients": compute_gradients,
        "apply_gradients": apply_gradients,
    }
    return type("MovingAverageOptimizer", (v1.train.Optimizer,), methods)


def _find_slim_nets() -> None:
    """The package has them in object_detection.nets, and imports them as ``nets``."""
    api = importlib.util.find_spec("object_detection")
    folders = list((api.submodule_search_locations or ()) if api else ())
    for name in ("nets", "deployment", "preprocessing"):
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            _add_module(name).__path__ = [str(Path(folder) / name) for folder in folders]


def _leave_out() -> None:
    """Metrics, drawings and DETR's matcher: they bring matplotlib, SciPy and others, and no step here calls them."""
    for package, name in (
        ("object_detection", "eval_util"),
        ("object_detection.utils", "visualization_utils"),
        ("object_detection.matchers", "hungarian_matcher"),
    ):
        vars(importlib.import_module(package))[name] = _add_module(f"{package}.{name}")


def _add_module(name: str, **content: Any) -> Any:
    made = types.ModuleType(name)
    vars(made).update(content)
    made.__path__ = []
    sys.modules[name] = made
    return made


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def part(name: str) -> Any:
    """A module of the API, after ``import_api``."""
    return importlib.import_module(f"object_detection.{name}")


def parse_config(text: str) -> Any:
    """A pipeline.config as the API's own message. Merge, as in the API's programs: what is said twice is no mistake."""
    made = part("protos.pipeline_pb2").TrainEvalPipelineConfig()
    importlib.import_module("google.protobuf.text_format").Merge(text, made)
    return made


def losses_of(
    model: Any, features: Any, labels: Any, *, unpad: bool, step: Any, regularised: bool
) -> tuple[dict[str, Any], Any]:
    """The losses of a batch, as ``model_lib_v2.eager_train_step`` begins; and the labels, image by image."""
    import tensorflow as tf

    model._is_training = True
    tf.keras.backend.set_learning_phase(True)
    unstacked = part("model_lib").unstack_batch(labels, unpad_groundtruth_tensors=unpad)
    losses, _ = part("model_lib_v2")._compute_losses_and_predictions_dicts(
        model, features, unstacked, training_step=step, add_regularization_loss=regularised
    )
    return losses, unstacked


def predict_with_objects(model: Any, images: Any, shapes: Any) -> Any:
    """What the model makes of images with an object each: Faster R-CNN, in training, samples regions by the objects,
    and predicts nothing without. ``losses_of`` puts the batch's own in their place."""
    import tensorflow as tf

    count = images.shape[0]
    model.provide_groundtruth(
        groundtruth_boxes_list=[tf.constant([[0.25, 0.25, 0.75, 0.75]])] * count,
        groundtruth_classes_list=[tf.one_hot([0], model.num_classes)] * count,
        groundtruth_weights_list=[tf.ones((1,))] * count,
    )
    return model.predict(images, shapes)


def divides_by_matches(model: Any) -> bool:
    """Whether an SSD divides its losses by the anchors that match an object."""
    return bool(model._normalize_loss_by_num_matches)


def watch_matches(model: Any, seen: list[Any]) -> None:
    """Lets ``seen`` hold the weights of the anchors that matched an object, whenever an SSD has computed its losses."""
    loss = model._localization_loss

    def note_weights(*args: Any, **kwargs: Any) -> Any:
        seen[:] = [kwargs["weights"]]
        return loss(*args, **kwargs)

    object.__setattr__(model, "_localization_loss", note_weights)
