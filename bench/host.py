"""How near the forecast of a DataLoader's host memory comes to what its processes really take.

    python bench/host.py               # a table, in Markdown
    python bench/host.py --json        # for tests
    python bench/host.py --only spawn

Each row is a process of its own with a COCO file like the real one (objects in no order), a dataset as COCO's API or
Detectron2 keeps it, and a DataLoader. What counts is the proportional set size of the process and its workers and what
they have in /dev/shm, beyond what there was before the dataset was opened, when every worker has read its part of an
epoch and batches wait (or while the annotations are packed, if that takes more); and what of it is in /dev/shm. Linux
only.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

MIB = 1 << 20
FILLED = 1.0
"""seconds that workers get to fill their queues before a measurement"""


@dataclass(frozen=True)
class Case:
    images: int = 3000
    objects: int = 7
    vertices: int = 24
    side: int = 32
    batch: int = 16
    workers: int = 0
    prefetch_factor: int = 2
    collate: str = "stacked"
    """images as one tensor, by a function of our own; ``listed`` as they are; ``default`` is PyTorch's function"""
    trimmed: bool = False
    """MALLOC_TRIM_THRESHOLD_ is set"""
    start: str = "fork"
    form: str = "list"
    epochs: int = 1

    @property
    def name(self) -> str:
        data = f"{self.images} images of {self.objects} objects as {self.form}"
        kept = f"{'' if self.collate == 'stacked' else f', {self.collate}'}{', trimmed' if self.trimmed else ''}"
        long = f"{kept}, {self.epochs} epochs" if self.epochs > 1 else kept
        return f"{data}, {self.workers} workers ({self.start}), batch {self.batch} x {self.side}^2{long}"


CASES = (
    Case(),
    Case(form="buffers"),
    Case(workers=2),
    Case(workers=4),
    Case(workers=2, epochs=4),
    Case(workers=2, form="buffers"),
    Case(workers=2, start="spawn"),
    Case(workers=2, start="spawn", form="buffers"),
    Case(workers=4, images=8000, vertices=30),
    Case(workers=4, images=12000, objects=2, vertices=8),
    Case(workers=2, images=1280, side=256, batch=4),
    Case(workers=2, images=1280, side=256, batch=4, collate="listed"),
    Case(workers=2, images=3200, side=256, batch=16),
    Case(workers=2, images=3200, side=256, batch=16, collate="default"),
    Case(workers=2, images=680, side=512, batch=2, prefetch_factor=3),
    Case(workers=4, images=1360, side=400, batch=2),
    Case(workers=4, images=400, side=640, batch=4, trimmed=True),
)


@dataclass(frozen=True)
class Row:
    name: str
    forecast: int
    high: int
    measured: int
    shm: int
    measured_shm: int

    @property
    def off(self) -> float:
        return self.forecast / self.measured - 1


def write_annotations(case: Case, path: Path) -> None:
    draw = random.Random(0)

    def numbers(count: int) -> list[float]:
        return [round(draw.random() * 600, 2) for _ in range(count)]

    images = [{
        "license": 1, "file_name": f"{number:012d}.jpg", "coco_url": f"http://images.cocodataset.org/{number:012d}.jpg",
        "height": case.side, "width": case.side, "date_captured": f"2013-11-14 11:18:{number:08d}",
        "flickr_url": f"http://farm9.staticflickr.com/8186/{number:012d}_z.jpg", "id": number,
    } for number in range(case.images)]  # fmt: skip
    objects = [{
        "segmentation": [numbers(2 * case.vertices)], "area": draw.random() * 9999, "iscrowd": 0,
        "image_id": number % case.images, "bbox": [0.25, 0.25, *numbers(2)], "category_id": draw.randint(1, 90),
        "id": 1_000_000 + number,
    } for number in range(case.images * case.objects)]  # fmt: skip
    draw.shuffle(objects)
    path.write_text(json.dumps({"images": images, "annotations": objects, "categories": []}))


class Coco:
    """Annotations as COCO's own API keeps them, or as Detectron2 does."""

    def __init__(self, path: Path, case: Case) -> None:
        import numpy as np

        with path.open() as file:
            self.dataset = json.load(file)
        self.case = case
        self.images = {image["id"]: image for image in self.dataset["images"]}
        self.objects = {each["id"]: each for each in self.dataset["annotations"]}
        self.of_image: dict[int, list[Any]] = {number: [] for number in self.images}
        for each in self.dataset["annotations"]:
            self.of_image[each["image_id"]].append(each)
        self.packed, self.while_loading = None, 0
        if case.form == "buffers":
            texts = [np.frombuffer(pickle.dumps(self._entry(number), -1), np.uint8) for number in self.images]
            self.ends = np.cumsum([len(text) for text in texts])
            self.packed = np.concatenate(texts)
            self.while_loading = of_tree()[0]
            del self.dataset, self.images, self.objects, self.of_image

    def _entry(self, number: int) -> dict[str, Any]:
        image = self.images[number]
        kept = ("iscrowd", "bbox", "category_id", "segmentation")
        marked = [{name: each[name] for name in kept} for each in self.of_image[number]]
        return {"file_name": image["file_name"], "height": 1, "width": 1, "image_id": number, "annotations": marked}

    def __len__(self) -> int:
        return self.case.images

    def __getitem__(self, number: int) -> Any:
        import numpy as np
        import torch

        if self.packed is None:
            marked = self.of_image[number]
        else:
            first = 0 if number == 0 else self.ends[number - 1]
            marked = pickle.loads(memoryview(self.packed[first : self.ends[number]]))["annotations"]
        for each in marked:
            np.asarray(each["segmentation"][0])
        boxes = torch.tensor([each["bbox"] for each in marked])
        return torch.ones(3, self.case.side, self.case.side), boxes


def stack(items: list[Any]) -> Any:
    import torch

    images, boxes = zip(*items, strict=True)
    return torch.stack(images), torch.cat(boxes)


def listed(items: list[Any]) -> Any:
    import torch

    images, boxes = zip(*items, strict=True)
    return images, torch.cat(boxes)  # each tensor takes a file descriptor on its way


def of_tree() -> tuple[int, int]:
    """(bytes, bytes of shared memory) of this process and those it has started; pages of files are left out, which
    the system can drop."""
    import psutil

    processes = (psutil.Process(), *psutil.Process().children(recursive=True))
    shm = sum(shared_files([process.pid for process in processes]).values())
    ram = shm
    for process in processes:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines}
        ram += sizes["Pss_Anon"]
    return ram, shm


def shared_files(pids: Sequence[int]) -> dict[int, int]:
    """Bytes of each file in /dev/shm, by inode, that these processes have open or mapped. A batch that waits is mapped
    by nobody; its worker keeps the descriptor until it is fetched."""
    device = Path("/dev/shm").stat().st_dev
    sizes: dict[int, int] = {}
    for pid in pids:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found = descriptor.stat()
                if found.st_dev == device:
                    sizes[found.st_ino] = found.st_blocks * 512
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            addresses, _, _, _, inode, *path = line.split(maxsplit=5)
            if path and path[0].startswith("/dev/shm/"):
                start, end = (int(address, 16) for address in addresses.split("-"))
                sizes.setdefault(int(inode), end - start)
    return sizes


def measure(case: Case, path: Path) -> tuple[int, int]:
    """In a process of its own."""
    import numpy as np
    import torch
    from torch.utils.data import DataLoader

    np.asarray([1.0]), torch.ones(1), gc.collect()
    before, shm_before = of_tree()
    data = Coco(path, case)
    gc.collect()
    lives: dict[str, Any] = {
        "persistent_workers": True,
        "prefetch_factor": case.prefetch_factor,
        "multiprocessing_context": case.start,
    }
    loader: Any = DataLoader(
        data,
        case.batch,
        shuffle=True,
        num_workers=case.workers,
        collate_fn={"stacked": stack, "listed": listed, "default": None}[case.collate],
        **(lives if case.workers else {}),
    )
    last = len(loader) - case.workers * case.prefetch_factor - 2
    highest, highest_shm = data.while_loading, shm_before
    for _ in range(case.epochs):
        for step, batch in enumerate(loader):
            if step in (2, last):
                time.sleep(FILLED if case.workers else 0)
                ram, shm = of_tree()
                highest, highest_shm = max(highest, ram), max(highest_shm, shm)
            del batch
    return highest - before, highest_shm - shm_before


def forecast(case: Case, path: Path) -> tuple[int, int, int]:
    """What oomproof says, without what the training process takes by itself."""
    from oomproof.data.annotations.in_ram import find_host_data
    from oomproof.data.annotations.read import read_dataset
    from oomproof.memory.host_memory import TRAINER, host_memory
    from oomproof.memory.runtime import Runtime
    from oomproof.memory.settings import Settings
    from oomproof.memory.timeline import Builder

    builder = Builder()
    for _ in range(case.batch):
        builder.allocate(3 * case.side * case.side * 4, kind="input", owner="(step)", op="input")
    step = builder.build()
    known = find_host_data(read_dataset(path)).as_mapping()
    settings = Settings({"batch": case.batch}, {"batch": "batch"})
    step = replace(step, about=replace(step.about, dataset=known, settings=settings))
    runtime = Runtime(
        workers=case.workers,
        prefetch_factor=case.prefetch_factor,
        worker_start=case.start,
        annotations=case.form,
        malloc_trim=case.trimmed,
        persistent_workers=case.epochs > 1,
    )
    ram, shm = host_memory(step, runtime)
    return ram.expected - TRAINER.expected, ram.high - TRAINER.high, shm


def compare(cases: Sequence[Case]) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            path = Path(folder, "annotations.json")
            write_annotations(case, path)
            command = [sys.executable, "-W", "ignore", __file__, "--measure", str(CASES.index(case)), str(path)]
            trim = {"MALLOC_TRIM_THRESHOLD_": str(128 << 10)} if case.trimmed else {}
            environment = {**os.environ, "OMP_NUM_THREADS": "1", **trim}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            measured = json.loads(done.stdout)
            said = forecast(case, path)
            yield Row(case.name, said[0], said[1], measured[0], said[2], measured[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--only", default="", help="rows whose name has this in it, for example: --only spawn")
    parser.add_argument("--measure", nargs=2, metavar=("CASE", "FILE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measure(CASES[int(asked.measure[0])], Path(asked.measure[1]))))
        return
    rows = compare([case for case in CASES if asked.only in case.name])
    if asked.json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    print(
        "| run | forecast MiB | measured MiB | off | upper figure MiB | /dev/shm forecast | measured |\n"
        "|---|---|---|---|---|---|---|",
        flush=True,
    )
    for row in rows:
        ram = f"{row.forecast / MIB:.0f} | {row.measured / MIB:.0f} | {row.off:+.1%} | {row.high / MIB:.0f}"
        print(f"| {row.name} | {ram} | {row.shm / MIB:.0f} | {row.measured_shm / MIB:.0f} |", flush=True)


if __name__ == "__main__":
    main()
