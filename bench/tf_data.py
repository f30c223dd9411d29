"""How near the forecast of a tf.data pipeline's host memory comes to what a process really takes.

    python bench/tf_data.py                    # a table, in Markdown
    python bench/tf_data.py --plain --runs 3   # with malloc as it is, whose gaps differ from run to run
    python bench/tf_data.py --json             # for tests

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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

MIB = 1 << 20
SHAPE = (256, 256, 3)
SETTLED, LONGEST = 1.0, 30.0
"""seconds without growth that count as filled, and after which a pipeline is measured as it is"""
PAUSE = 0.003
"""seconds that a step takes: a training that never waits makes tf.data fetch further and further ahead"""


@dataclass(frozen=True)
class Row:
    name: str
    forecast: int
    high: int
    measured: int
    """the median, where there were several runs"""
    least: int
    most: int

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
    return images(400).cache().shuffle(100).repeat().batch(16).prefetch(2)


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


def small_images() -> Any:
    """Thumbnails in bytes: a block is smaller than the 128 KiB from which glibc asks the system at first."""
    import tensorflow as tf

    made = tf.data.Dataset.range(60000).map(lambda n: tf.fill((96, 96, 3), tf.cast(n % 256, tf.uint8)), 2)
    return made.shuffle(10000).batch(128).prefetch(2)


def large_images() -> Any:
    """Batches of 37.5 MiB, which are too large for glibc's heap, of images of 4.7 MiB, which are not."""
    import tensorflow as tf

    made = tf.data.Dataset.range(4000).map(lambda n: tf.fill((640, 640, 3), tf.cast(n, tf.float32)), 2)
    return made.shuffle(60).batch(8).prefetch(2)


def bytes_then_floats() -> Any:
    """Photos are shuffled as bytes, and only then become the floats of a batch."""
    import tensorflow as tf

    made = tf.data.Dataset.range(6000).map(lambda n: tf.fill((512, 512, 3), tf.cast(n % 256, tf.uint8)), 2)
    return made.shuffle(400).map(lambda photo: tf.cast(photo, tf.float32) / 255.0, 2).batch(8).prefetch(2)


def cached_bytes() -> Any:
    """The usual training of a small data set: cached as bytes, made floats for every batch anew."""
    import tensorflow as tf

    made = tf.data.Dataset.range(1500).map(lambda n: tf.fill(SHAPE, tf.cast(n % 256, tf.uint8)), 2)
    mixed = made.cache().shuffle(1500).repeat()
    return mixed.map(lambda photo: tf.cast(photo, tf.float32) / 255.0, 2).batch(16).prefetch(2)


PIPELINES: dict[str, tuple[Callable[[], Any], int]] = {
    "map, shuffle(400)": (mixed, 2400),
    "map, shuffle(300), batch(32), prefetch(2)": (mixed_then_batched, 128),
    "map, batch(16), shuffle(25), prefetch(1)": (batched_then_mixed, 150),
    "map, cache(), shuffle(100), batch(16), prefetch(2)": (cached, 75),
    "map, batch(32), prefetch(10)": (far_ahead, 80),
    "from_tensor_slices, shuffle(300), batch(16), prefetch(2)": (whole_arrays, 20),
    "interleave(8, 4, parallel), batch(8), prefetch(1)": (interleaved, 256),
    "from_generator, prefetch(6)": (generated, 40),
    "Keras PyDataset(workers=2, max_queue_size=8)": (queued, 40),
    "map to 27 KiB, shuffle(10000), batch(128), prefetch(2)": (small_images, 300),
    "map to 4.7 MiB, shuffle(60), batch(8), prefetch(2)": (large_images, 100),
    "map to bytes, shuffle(400), map to floats, batch(8), prefetch(2)": (bytes_then_floats, 200),
    "map to bytes, cache(), shuffle(1500), map to floats, batch(16), prefetch(2)": (cached_bytes, 280),
}
"""how each is made, and how many elements the training takes of it: as many as fill a shuffle buffer anew four times
and more, since gaps in the heap grow until then"""

SMALL = {"map to 27 KiB, shuffle(10000), batch(128), prefetch(2)"}
"""whose elements are below the 64 KiB from which blocks are given back at once, so that gaps cannot be kept out"""


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
        time.sleep(PAUSE)
    highest, since, start = 0, time.monotonic(), time.monotonic()
    while time.monotonic() - since < SETTLED and time.monotonic() - start < LONGEST:
        time.sleep(0.1)
        if process.memory_info().rss > highest + MIB:
            highest, since = process.memory_info().rss, time.monotonic()
    del taken
    said = forecast.live if "MALLOC_MMAP_THRESHOLD_" in os.environ else forecast.expected
    found = _highest() - before
    return Row(name, said, forecast.high, found, found, found)


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


def measure_all(names: list[str], runs: int) -> list[Row]:
    """One process for each run, forked from one that has TensorFlow loaded and has not used it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tensorflow", "psutil", "oomproof.data.pipeline"])
    rows = []
    for name in names:
        found: list[Row] = []
        for _ in range(runs):
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_answer, args=(name, there))
            process.start()
            there.close()
            found.append(here.recv())
            process.join()
        sizes = [row.measured for row in found]
        rows.append(replace(found[0], measured=int(median(sizes)), least=min(sizes), most=max(sizes)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--plain", action="store_true", help="leave malloc as the system has it")
    parser.add_argument("--runs", type=int, default=1, metavar="N", help="measure each N times (default 1)")
    parser.add_argument("--only", default="", help="pipelines whose name has this in it, for example: --only cache")
    asked = parser.parse_args()
    if not asked.plain:
        os.environ["MALLOC_MMAP_THRESHOLD_"] = str(64 << 10)
        os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    names = [name for name in PIPELINES if asked.only in name and (asked.plain or name not in SMALL)]
    rows = measure_all(names, asked.runs)
    if asked.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print("| pipeline | forecast MiB | measured MiB | off | upper figure MiB |\n|---|---|---|---|---|")
    for row in rows:
        spread = f" ({row.least / MIB:.0f} to {row.most / MIB:.0f})" if asked.runs > 1 else ""
        figures = f"{row.forecast / MIB:.0f} | {row.measured / MIB:.0f}{spread} | {row.off:+.1%} | {row.high / MIB:.0f}"
        print(f"| {row.name} | {figures} |")


if __name__ == "__main__":
    main()
