"""How near the forecast of a tf.data pipeline's host memory comes to what a process really takes.

    python bench/tf_data.py            # a table, in Markdown
    python bench/tf_data.py --json     # for tests

Each pipeline is filled in a process of its own; what counts is the highest resident memory since it began, less what
the process held before. Live bytes come first, so the processes are told to give every block of 64 KiB or
more back to the system when it is freed (MALLOC_MMAP_THRESHOLD_); ``--plain`` leaves malloc as it is, and holds
what a forecast says against it, gaps in the heap included.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MIB = 1 << 20
SHAPE = (256, 256, 3)
SETTLED, LONGEST = 1.0, 30.0
"""seconds without growth that count as filled, and after which a pipeline is measured as it is"""


@dataclass(frozen=True)
class Row:
    name: str
    forecast: int
    high: int
    measured: int

    @property
    def off(self) -> float:
        return self.forecast / self.measured - 1


def image(number: Any) -> Any:
    import tensorflow as tf

    return tf.fill(SHAPE, tf.cast(number, tf.float32))


def images(count: int, calls: int | None = 2) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.range(count).map(image, num_parallel_calls=calls)


def mixed() -> Any:
    return images(4000).shuffle(400)


def mixed_then_batched() -> Any:
    return images(12000).shuffle(300).batch(32).prefetch(2)


def batched_then_mixed() -> Any:
    return images(4000).batch(16).shuffle(25).prefetch(1)


def cached() -> Any:
    return images(400).cache().shuffle(100).batch(16).prefetch(2)


def far_ahead() -> Any:
    return images(4000).batch(32).prefetch(10)


def whole_arrays() -> Any:
    import numpy as np
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(np.ones((400, *SHAPE), np.float32)).shuffle(300).batch(16).prefetch(2)


def interleaved() -> Any:
    import tensorflow as tf

    def file(number: Any) -> Any:
        return tf.data.Dataset.range(1000).map(lambda each: image(each + number), num_parallel_calls=1)

    return tf.data.Dataset.range(64).interleave(file, 8, 4, num_parallel_calls=4).batch(8).prefetch(1)


def generated() -> Any:
    import numpy as np
    import tensorflow as tf

    def batches() -> Any:
        while True:
            yield np.ones((32, *SHAPE), np.float32)

    spec = tf.TensorSpec((32, *SHAPE), tf.float32)
    return tf.data.Dataset.from_generator(batches, output_signature=spec).prefetch(6)


def queued() -> Any:
    import keras
    import numpy as np

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> tuple[Any]:
            return (np.ones((32, *SHAPE), np.float32),)

    return Batches(workers=2, max_queue_size=8)


PIPELINES: dict[str, tuple[Callable[[], Any], int]] = {
    "map, shuffle(400)": (mixed, 40),
    "map, shuffle(300), batch(32), prefetch(2)": (mixed_then_batched, 128),
    "map, batch(16), shuffle(25), prefetch(1)": (batched_then_mixed, 8),
    "map, cache(), shuffle(100), batch(16), prefetch(2)": (cached, 25),
    "map, batch(32), prefetch(10)": (far_ahead, 8),
    "from_tensor_slices, shuffle(300), batch(16), prefetch(2)": (whole_arrays, 20),
    "interleave(8, 4, parallel), batch(8), prefetch(1)": (interleaved, 256),
    "from_generator, prefetch(6)": (generated, 4),
    "Keras PyDataset(workers=2, max_queue_size=8)": (queued, 4),
}
"""how each is made, and how many elements the training takes of it"""


def measure(name: str) -> Row:
    """Fills the pipeline as a training would that is slower than its data. In a process of its own."""
    import psutil

    make, elements = PIPELINES[name]
    for _ in images(4).batch(2).prefetch(1):  # what TensorFlow takes for itself at first
        pass
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the highest resident size counts from here
    forecast, dataset = _read(make())
    taken, iterator = None, iter(dataset)
    for _ in range(elements):
        taken = next(iterator)
    highest, since, start = 0, time.monotonic(), time.monotonic()
    while time.monotonic() - since < SETTLED and time.monotonic() - start < LONGEST:
        time.sleep(0.1)
        if process.memory_info().rss > highest + MIB:
            highest, since = process.memory_info().rss, time.monotonic()
    del taken
    said = forecast.live if "MALLOC_MMAP_THRESHOLD_" in os.environ else forecast.expected
    return Row(name, said, forecast.high, _highest() - before)


def _read(data: Any) -> tuple[Any, Any]:
    """The forecast for the data, and what model.fit would read."""
    import tensorflow as tf

    if isinstance(data, tf.data.Dataset):
        from oomproof.data.pipeline import pipeline_of

        return pipeline_of(data), data
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    from oomproof.data.pipeline.generators import pipeline_of_generator

    return pipeline_of_generator(data), PyDatasetAdapter(data).get_tf_dataset()


def _highest() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10


def _answer(name: str, connection: Any) -> None:
    connection.send(measure(name))
    connection.close()
    os._exit(0)  # TensorFlow's threads still hold the pipeline: nothing is to be waited for


def measured(names: list[str]) -> list[Row]:
    """One process each, forked from one that has TensorFlow loaded and has not used it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tensorflow", "psutil", "oomproof.data.pipeline"])
    rows = []
    for name in names:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_answer, args=(name, there))
        process.start()
        there.close()
        rows.append(here.recv())
        process.join()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--plain", action="store_true", help="leave malloc as the system has it")
    parser.add_argument("--only", default="", help="pipelines whose name has this in it, for example: --only cache")
    asked = parser.parse_args()
    if not asked.plain:
        os.environ["MALLOC_MMAP_THRESHOLD_"] = str(64 << 10)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    rows = measured([name for name in PIPELINES if asked.only in name])
    if asked.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print("| pipeline | forecast MiB | measured MiB | off | upper figure MiB |\n|---|---|---|---|---|")
    for row in rows:
        figures = f"{row.forecast / MIB:.0f} | {row.measured / MIB:.0f} | {row.off:+.1%} | {row.high / MIB:.0f}"
        print(f"| {row.name} | {figures} |")


if __name__ == "__main__":
    main()
