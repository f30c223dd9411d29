"""One XML file of Pascal VOC, read with expat in bounded memory. Entities are refused: they can grow without end."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import BinaryIO
from xml.parsers import expat

BLOCK = 1 << 16
LARGEST = 64 << 20
DEEPEST = 64
MOST_OBJECTS = 1_000_000
LONGEST_TEXT = 4096
CORNERS = ("xmin", "ymin", "xmax", "ymax")

_SIZE = ("annotation", "size")
_OBJECT = ("annotation", "object")


class NotVoc(ValueError):
    """Says what is wrong with the file."""


@dataclass
class Voc:
    """What an annotation says of its image."""

    name: str = ""
    width: int = 0
    height: int = 0
    objects: list[tuple[float, float, float, float, int]] = field(default_factory=list)
    """left, top, right, bottom, vertices of a polygon (as some tools write it)"""
    broken: int = 0
    """objects without four corners"""


def parse(file: BinaryIO) -> Voc:
    reading = _Reading()
    try:
        size = 0
        while block := file.read(BLOCK):
            size += len(block)
            if size > LARGEST:
                raise NotVoc(f"larger than {LARGEST >> 20} MiB")
            reading.parser.Parse(block)
        reading.parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise NotVoc(f"not XML: {error}") from None
    except (LookupError, ValueError) as error:  # an encoding that Python does not have, or has not for texts
        if isinstance(error, NotVoc):
            raise
        raise NotVoc(f"not XML: {error}") from None
    if reading.root != "annotation":
        raise NotVoc(f"expected <annotation>, found <{reading.root[:40]}>")
    return reading.found


class _Reading:
    """expat calls it at every tag; only what is wanted is kept."""

    def __init__(self) -> None:
        self.found, self.root = Voc(), ""
        self.path: list[str] = []
        self.text = ""
        self.corners: dict[str, float] = {}
        self.polygon = 0
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._data
        self.parser.StartDoctypeDeclHandler = _refuse
        self.parser.EntityDeclHandler = _refuse

    def _start(self, tag: str, _: object) -> None:
        self.root = self.root or tag
        self.path.append(tag)
        self.text = ""
        if len(self.path) > DEEPEST:
            raise NotVoc(f"nested more than {DEEPEST} deep")
        if tuple(self.path) == _OBJECT:
            self.corners, self.polygon = {}, 0

    def _data(self, text: str) -> None:
        if len(self.text) < LONGEST_TEXT:
            self.text += text[:LONGEST_TEXT]

    def _end(self, tag: str) -> None:
        parent = tuple(self.path[:-1])
        if parent == (*_OBJECT, "bndbox"):
            if tag in CORNERS:
                self.corners[tag] = _number(self.text)
        elif parent == (*_OBJECT, "polygon"):
            self.polygon += 1
        elif parent == _SIZE:
            if tag in ("width", "height"):
                side = _number(self.text)
                setattr(self.found, tag, int(side) if 0 < side < 2**31 else 0)
        elif parent == ("annotation",):
            if tag == "filename":
                self.found.name = self.text.strip()[:LONGEST_TEXT]
            elif tag == "object":
                self._add_object()
        self.path.pop()
        self.text = ""

    def _add_object(self) -> None:
        if len(self.found.objects) >= MOST_OBJECTS:
            raise NotVoc(f"more than {MOST_OBJECTS:,} objects")
        if len(self.corners) < 4:
            self.found.broken += 1
            return
        left, top, right, bottom = (self.corners[corner] for corner in CORNERS)
        # Polygons are tags x1, y1, x2, y2 ...: two a vertex.
        self.found.objects.append((left, top, right, bottom, self.polygon // 2))


def _refuse(*_: object) -> None:
    raise NotVoc("it has a document type or entities, which annotations do not need")


def _number(text: str) -> float:
    try:
        return float(text) if len(text) < 64 else math.nan
    except ValueError:
        return math.nan
