"""Forecasts of TensorFlow steps against its own CPU allocator, and the time that a check takes.

    python bench/tensorflow_memory.py [NAME ...]

Needs TensorFlow, Keras and KerasHub. For each model: what a real step held at its peak, kernels' own scratch left out
(it is told beside it); how far a trace is off in the order that was measured, in the order of one CPU thread, in the
order of a GPU; the upper figure; and the CPU seconds of a check for a GPU.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

for name, value in {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_NUM_INTEROP_THREADS": "1",
}.items():
    os.environ.setdefault(name, value)
sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "trace"))

from keras_nets import application, retinanet, three_layers, unet  # noqa: E402
from real_tf import measure  # noqa: E402

from oomproof.memory import forecaster  # noqa: E402
from oomproof.memory.devices import find  # noqa: E402
from oomproof.memory.runtime import Runtime  # noqa: E402
from oomproof.trace.tensorflow.keras import prepare_keras, trace_keras  # noqa: E402
from oomproof.trace.tensorflow.order import gpu_order  # noqa: E402
from oomproof.trace.tensorflow.step import laid_out, measured_order, timeline_of  # noqa: E402

MIB = 1 << 20
MODELS = {
    "three-layers": three_layers,
    "unet": unet,
    "resnet50": lambda: application("ResNet50", 8, 224),
    "mobilenet_v2": lambda: application("MobileNetV2", 8, 224),
    "efficientnet_b0": lambda: application("EfficientNetB0", 8, 224),
    "retinanet": retinanet,
}
ROW = "{:16} {:>10} {:>9} {:>10} {:>8} {:>8} {:>8} {:>9}"


def row(name: str) -> str:
    model, batch = MODELS[name]()
    step = prepare_keras(model, batch, dialect="cpu")
    run, graph = step.captured.function, step.graph
    real = measure(lambda: run(*batch))
    held = sum(graph.nodes[number].outputs[0].bytes for number in graph.arguments)
    held += sum(node.outputs[0].bytes for node in graph.nodes if node.op == "Const")
    held += sum(variable.bytes for variable in step.captured.variables)
    total = real.without_scratch + held

    def off(nbytes: float) -> str:
        return f"{100 * (nbytes / total - 1):+.2f} %"

    measured = laid_out(step, measured_order(step, real.order), "cpu").peak().bytes
    on_gpu = laid_out(step, gpu_order(graph), "cpu").peak().bytes
    timeline = timeline_of(step, "cpu")
    told = forecaster.forecast(timeline, find("64GiB"), Runtime(), name, {}).allocated
    fresh, batch = MODELS[name]()
    began = time.process_time()
    forecaster.forecast(trace_keras(fresh, batch), find("RTX 3060"), Runtime(), name, {})
    return ROW.format(
        name,
        f"{total / MIB:.1f} MiB",
        f"+{(real.peak + held - total) / MIB:.1f}",
        off(measured),
        off(told.expected),
        off(on_gpu),
        off(told.high),
        f"{time.process_time() - began:.1f} s",
    )


if __name__ == "__main__":
    print(ROW.format("model", "real", "scratch", "measured", "cpu", "gpu", "upper", "check"), flush=True)
    for chosen in sys.argv[1:] or MODELS:
        print(row(chosen), flush=True)
