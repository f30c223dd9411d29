"""A dataset of COCO's order is profiled in seconds, within little memory."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

IMAGES, OBJECTS = 50_000, 7
PROFILE = """
import json, resource, sys, time
from oomproof.data.annotations.profile import profile
from oomproof.data.annotations.read import read_dataset
began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = profile(read_dataset(sys.argv[1]), 5)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps([time.process_time() - began, grown << 10, found.images, found.objects]))
"""


def write_large(path: Path) -> None:
    """Line by line: the whole would take more memory than reading it."""
    draw = random.Random(0)
    with path.open("w") as file:
        file.write('{"images": [')
        for number in range(IMAGES):
            image = {"id": number, "file_name": f"{number:012d}.jpg", "height": 480, "width": 640}
            file.write((", " if number else "") + json.dumps(image))
        file.write('], "annotations": [')
        for number in range(IMAGES * OBJECTS):
            outline = [round(draw.random() * 400, 2) for _ in range(2 * 24)]
            box = [draw.randint(0, 300), draw.randint(0, 300), 50.25, 40.5]
            each = {"id": number, "image_id": draw.randrange(IMAGES), "category_id": 1, "bbox": box, "iscrowd": 0}
            file.write((", " if number else "") + json.dumps({**each, "segmentation": [outline], "area": 1.0}))
        file.write('], "categories": [{"id": 1, "name": "a"}]}')


@pytest.mark.thorough
@pytest.mark.slow
def test_fifty_thousand_images_in_ten_seconds(tmp_path: Path) -> None:
    path = tmp_path / "annotations.json"
    write_large(path)
    done = subprocess.run([sys.executable, "-c", PROFILE, str(path)], capture_output=True, text=True, check=True)
    seconds, grown, images, objects = json.loads(done.stdout)
    assert (images, objects) == (IMAGES, IMAGES * OBJECTS)
    assert seconds < 10  # of processor time: other processes may take the rest
    assert grown < 1 << 30
