"""Small datasets, written in every format by the plainest code that could: what readers read has to be the same."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

SIDE = 2000


@dataclass(frozen=True)
class Box:
    x: int
    y: int
    width: int
    height: int
    vertices: int = 0
    crowd: bool = False


@dataclass(frozen=True)
class Picture:
    name: str
    width: int
    height: int
    boxes: tuple[Box, ...]


@st.composite
def pictures(draw: st.DrawFn, polygons: bool = True, crowds: bool = True) -> list[Picture]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        width, height = draw(st.integers(1, SIDE)), draw(st.integers(1, SIDE))
        boxes = []
        for _ in range(draw(st.integers(0, 5))):
            x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
            size = draw(st.integers(1, width - x)), draw(st.integers(1, height - y))
            vertices = draw(st.sampled_from([0, 3, 4, 17, 400])) if polygons else 0
            boxes.append(Box(x, y, *size, vertices, crowds and draw(st.booleans())))
        found.append(Picture(f"{number:04d}.png", width, height, tuple(boxes)))
    return found


def png(width: int, height: int) -> bytes:
    """The beginning of a PNG, which is all that may be looked at."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + b"IHDR"
        + header
        + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    )


def polygon(box: Box) -> list[float]:
    """Vertices that reach to all four sides of the box, or none."""
    right, bottom = box.x + box.width, box.y + box.height
    corners: list[float] = [box.x, box.y, right, box.y, right, bottom]
    return (corners + [box.x + 0.5, box.y + 0.25] * (box.vertices - 3)) if box.vertices else []


def write_images(of: list[Picture], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for picture in of:
        (folder / picture.name).write_bytes(png(picture.width, picture.height))


def coco(of: list[Picture]) -> dict[str, Any]:
    annotations = []
    for number, picture in enumerate(of):
        for box in picture.boxes:
            entry = {
                "id": len(annotations) + 1,
                "image_id": number,
                "category_id": 1,
                "bbox": [box.x, box.y, box.width, box.height],
                "iscrowd": int(box.crowd),
            }
            if box.vertices:
                entry["segmentation"] = [polygon(box)]
            annotations.append(entry)
    images = [
        {"id": number, "file_name": picture.name, "width": picture.width, "height": picture.height}
        for number, picture in enumerate(of)
    ]
    return {"info": {"images": 3}, "images": images, "annotations": annotations, "categories": [{"id": 1}]}


def write_coco(of: list[Picture], path: Path, backwards: bool = False, indent: int | None = None) -> Path:
    content = coco(of)
    if backwards:
        content = dict(reversed(content.items()))
        content["annotations"] = content["annotations"][::-1]
    path.write_text(json.dumps(content, indent=indent))
    return path


def write_voc(of: list[Picture], folder: Path) -> Path:
    (folder / "Annotations").mkdir(parents=True)
    for picture in of:
        objects = "".join(
            f"<object><name>thing</name><part><bndbox><xmin>1</xmin></bndbox></part><bndbox><xmin>{box.x}</xmin>"
            f"<ymin>{box.y}</ymin><xmax>{box.x + box.width}</xmax><ymax>{box.y + box.height}</ymax></bndbox></object>"
            for box in picture.boxes
        )
        size = f"<size><width>{picture.width}</width><height>{picture.height}</height><depth>3</depth></size>"
        text = f"<annotation><filename>{picture.name}</filename>{size}{objects}</annotation>"
        (folder / "Annotations" / picture.name).with_suffix(".xml").write_text(text)
    return folder


def write_yolo(of: list[Picture], folder: Path) -> Path:
    write_images(of, folder / "images" / "train")
    labels = folder / "labels" / "train"
    labels.mkdir(parents=True)
    for picture in of:
        lines = []
        for box in picture.boxes:
            if box.vertices:
                sides = [picture.width, picture.height] * box.vertices
                numbers = [number / side for number, side in zip(polygon(box), sides, strict=True)]
            else:
                middle = (box.x + box.width / 2) / picture.width, (box.y + box.height / 2) / picture.height
                numbers = [*middle, box.width / picture.width, box.height / picture.height]
            lines.append("0 " + " ".join(map(repr, numbers)))
        if lines:
            (labels / picture.name).with_suffix(".txt").write_text("\n".join(lines) + "\n")
    (folder / "data.yaml").write_text("train: images/train\nval: images/val\nnames: {0: thing}\n")
    return folder


def write_records(of: list[Picture], path: Path, sizes: bool = True) -> Path:
    path.write_bytes(b"".join(framed(example(picture, sizes)) for picture in of))
    return path


def example(picture: Picture, sizes: bool = True) -> bytes:
    """A tf.Example as the Object Detection API's scripts make it."""
    wide, high = picture.width, picture.height
    features: dict[str, bytes] = {
        "image/filename": bytes_list([picture.name.encode()]),
        "image/encoded": bytes_list([png(wide, high)]),
        "image/object/bbox/xmin": float_list([box.x / wide for box in picture.boxes]),
        "image/object/bbox/xmax": float_list([(box.x + box.width) / wide for box in picture.boxes]),
        "image/object/bbox/ymin": float_list([box.y / high for box in picture.boxes]),
        "image/object/bbox/ymax": float_list([(box.y + box.height) / high for box in picture.boxes]),
        "image/object/is_crowd": int_list([int(box.crowd) for box in picture.boxes]),
        "image/object/mask": bytes_list([bytes(box.vertices) for box in picture.boxes]),
    }
    if sizes:
        features |= {"image/height": int_list([high]), "image/width": int_list([wide])}
    entries = (field(1, field(1, key.encode()) + field(2, value)) for key, value in features.items())
    return field(1, b"".join(entries))


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def bytes_list(values: list[bytes]) -> bytes:
    return field(1, b"".join(field(1, value) for value in values))


def float_list(values: list[float]) -> bytes:
    return field(2, field(1, struct.pack(f"<{len(values)}f", *values)))


def int_list(values: list[int]) -> bytes:
    return field(3, field(1, b"".join(varint(value) for value in values)))


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))


def masked(data: bytes) -> int:
    crc = slow_crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def slow_crc32c(data: bytes) -> int:
    """Bit by bit, as the polynomial is written down."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
