"""Graphs of TensorFlow and Keras 2 built sooner, and the same: what only error messages need is left out.

Made for TensorFlow 2.21 and tf-keras 2.21. It changes the whole process, so it belongs into one of our own
(trace/tf_object_detection/child.py). A name that a version does not have is passed over: it is slower, not wrong.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

_PLAIN = frozenset({
    "Activation", "Add", "BatchNormalization", "Concatenate", "Conv2D", "DepthwiseConv2D", "FreezableBatchNorm",
    "MaxPooling2D", "ReLU", "ZeroPadding2D",
})  # fmt: skip
"""layers that say the shape of their result; Keras calls all layers once more, in a graph of their own, to learn it"""


def build_quickly() -> None:
    _keep_one_stack()
    _name_no_handles()
    _wrap_no_calls()
    _ask_plain_layers()


def _keep_one_stack() -> None:
    """Every operation remembers the lines of Python that made it."""
    stacks = importlib.import_module("tensorflow.python.util.tf_stack")
    one = stacks.extract_stack()
    _replace(stacks, "extract_stack", lambda original: lambda stacklevel=1: one)


def _name_no_handles() -> None:
    """A variable's name in its handle makes a kernel of its own for each: ten times the time, and only messages show
    it. In graphs the name tells variables apart."""
    context = importlib.import_module("tensorflow.python.eager.context")

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def make_handle(*args: Any, debug_name: str = "", **kwargs: Any) -> Any:
            named = "" if context.executing_eagerly() else debug_name
            return original(*args, debug_name=named, **kwargs)

        return make_handle

    _replace(importlib.import_module("tensorflow.python.ops.gen_resource_variable_ops"), "var_handle_op", make)


def _wrap_no_calls() -> None:
    """Keras wraps every call of a layer so that an error tells its arguments."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda function, object_name: function

    _replace(importlib.import_module("tf_keras.src.utils.traceback_utils"), "inject_argument_info_in_traceback", make)


def _ask_plain_layers() -> None:
    layers = importlib.import_module("tf_keras.src.engine.base_layer")
    tensors = importlib.import_module("tf_keras.src.engine.keras_tensor")
    backend = importlib.import_module("tf_keras.src.backend")
    import tensorflow as tf

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def infer_output(self: Any, inputs: Any, args: Any, kwargs: Any, masks: Any) -> Any:
            masked = any(each is not None for each in tf.nest.flatten(masks))
            plain = type(self).__name__ in _PLAIN and self._activity_regularizer is None
            if not plain or args or masked:
                return original(self, inputs, args, kwargs, masks)
            with tf.__internal__.FuncGraph(f"{self.name}_shapes").as_default(), backend.name_scope(self._name_scope()):
                self._maybe_build(inputs)
            shape = self.compute_output_shape(tf.nest.map_structure(lambda each: each.shape, inputs))
            self._set_save_spec(inputs, args, kwargs)
            return tensors.KerasTensor(tf.TensorSpec(shape, self.compute_dtype))

        return infer_output

    _replace(layers.Layer, "_infer_output_signature", make)


def _replace(holder: Any, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(holder, name, None)
    if original is not None:
        setattr(holder, name, make(original))
