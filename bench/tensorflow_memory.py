"""Forecasts of TensorFlow steps against its own CPU allocator, in fresh processes, and the time that a check takes.

    python bench/tensorflow_memory.py [--processes N] [NAME ...]

Needs TensorFlow, Keras and KerasHub. In which order a step runs changes from process to process, so each model is run
in N of them (5 unless told), one thread for operations each. For each model: the lowest, the middle and the highest
peak, kernels' own scratch left out; what was foretold, how far off the highest and the lowest that is, the upper figure
and whether a process was above it; the worst that a trace is off in the order that was measured; CPU seconds of a check
for a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "TF_NUM_INTEROP_THREADS": "1",
}
MIB = 1 << 20
NAMES = ("three-layers", "unet", "resnet50", "mobilenet_v2", "efficientnet_b0", "retinanet")
ROW = "{:16} {:>22} {:>10} {:>12} {:>10} {:>6} {:>9} {:>8}"


def measured(name: str) -> dict[str, float]:
    """One process's figures: the real peak, the foretold one, the upper one, in bytes."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "trace"))
    from keras_nets import application, retinanet, three_layers, unet
    from real_tf import measure

    from oomproof.memory import make_forecast as forecaster
    from oomproof.memory.cards.devices import find_device
    from oomproof.memory.runtime import Runtime
    from oomproof.trace.keras.on_tensorflow import prepare_keras, trace_keras
    from oomproof.trace.tensorflow.trace_step import find_measured_order, lay_out_step, timeline_of

    makers = dict(
        zip(
            NAMES,
            (
                three_layers,
                unet,
                lambda: application("ResNet50", 8, 160),
                lambda: application("MobileNetV2", 4, 128),
                lambda: application("EfficientNetB0", 4, 96),
                retinanet,
            ),
            strict=True,
        )
    )
    model, batch = makers[name]()
    step = prepare_keras(model, batch, dialect="cpu")
    run, graph = step.captured.function, step.graph
    real = measure(lambda: run(*batch))
    held = sum(graph.nodes[number].outputs[0].bytes for number in graph.arguments)
    held += sum(node.outputs[0].bytes for node in graph.nodes if node.op == "Const")
    held += sum(variable.bytes for variable in step.captured.variables)
    told = forecaster.build_forecast(timeline_of(step, "cpu"), find_device("64GiB"), Runtime(), name, {}).allocated
    found = {
        "real": real.without_scratch + held,
        "replayed": lay_out_step(step, find_measured_order(step, real.order), "cpu").peak().bytes,
        "expected": told.expected,
        "upper": told.high,
    }
    fresh, batch = makers[name]()
    began = time.process_time()
    forecaster.build_forecast(trace_keras(fresh, batch), find_device("RTX 3060"), Runtime(), name, {})
    return found | {"seconds": time.process_time() - began}


def row(name: str, processes: int) -> str:
    command = [sys.executable, __file__, "--one", name]
    told = [
        json.loads(
            subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**ENVIRONMENT, **os.environ}).stdout
        )
        for _ in range(processes)
    ]
    real = sorted(each["real"] for each in told)
    middle, expected, upper = statistics.median(real), told[0]["expected"], told[0]["upper"]
    return ROW.format(
        name,
        f"{real[0] / MIB:.1f} {middle / MIB:.1f} {real[-1] / MIB:.1f}",
        f"{expected / MIB:.1f}",
        f"{100 * (expected / real[-1] - 1):+.1f} {100 * (expected / real[0] - 1):+.1f} %",
        f"{upper / MIB:.1f}",
        "yes" if any(each["real"] > each["upper"] for each in told) else "no",
        f"{max(100 * abs(each['replayed'] / each['real'] - 1) for each in told):.2f} %",
        f"{statistics.median(each['seconds'] for each in told):.1f} s",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one)))
        sys.exit()
    print(ROW.format("model", "real, MiB", "expected", "off", "upper", "above", "measured", "check"), flush=True)
    for chosen in given.names:
        print(row(chosen, given.processes), flush=True)
