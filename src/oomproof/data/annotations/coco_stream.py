"""A COCO file as entries, in bounded memory: ijson reads the JSON, after long lists of numbers were counted.

Most of a COCO file are the vertices of polygons, of which only the number matters here. Made Python objects one by one
they cost half a minute for 500 MB; so a list of nothing but numbers under such a key is replaced by its length before
the JSON is parsed. A key cannot be mistaken for a part of a text: quotes within texts have a backslash before them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

BLOCK = 1 << 20
"""bytes that are searched at once"""
PIECE = 64 << 10
"""bytes that ijson gets at once: the time it takes grows with the square of the events in them (3.6.0)"""
LONGEST_LIST = 4 << 20
"""bytes that are looked ahead for the end of a list"""
LONGEST_VALUE = 4 << 20
"""bytes of one text or list; the parser holds a text as a whole, and begins anew with every piece of it"""
LONGEST_NUMBER = 1000
DEEPEST = 64

_KEY = rb'"(?:segmentation|counts|keypoints)"\s{0,16}'
_LIST = re.compile(rb"(" + _KEY + rb':\s{0,16})(\[[^"]*)(?=")')
_UNFINISHED = re.compile(_KEY + rb'(?::\s{0,16}(?:\[[^"]*)?)?\Z')
_OF_NUMBERS = b"-+.,0123456789eE[] \t\r\n"
_QUOTE = re.compile(rb'(?<!\\)"')
_PYTHONS = re.compile(rb"(?<=[\s:,\[])(?:-?[0-9]{19,}|-?Infinity|NaN)(?=[\s,}\]])")
_WITHIN_NUMBER = re.compile(rb"[-\w.]+\Z")
_DIGIT = re.compile(rb"[0-9]")
_LONGEST_KEY = len('"segmentation"')

WANTED = {
    "images": {"id", "file_name", "coco_url", "width", "height"},
    "annotations": {"id", "image_id", "bbox", "segmentation", "iscrowd"},
}


class NotAnnotations(ValueError):
    """Says what is wrong with the text as JSON of a dataset."""


class NotStrictJson(NotAnnotations):
    """Perhaps it is only that Python wrote it, whose NaN, Infinity and long integers ijson refuses."""


class CountedLists:
    """A file for ijson to read, in which lists of numbers have become their lengths."""

    def __init__(self, file: BinaryIO, told: Callable[[int], None], pythons: bool = False) -> None:
        """``pythons``: Python's own numbers are replaced, NaN by null and an integer of over 64 bits by a text."""
        self.file, self.told, self.pythons = file, told, pythons
        self.done = self.since_quote = self.given = 0
        self.ready = self.kept = b""

    def read(self, size: int = -1) -> bytes:
        """The next part; nothing for nothing, with which ijson asks whether these are bytes."""
        if size == 0:
            return b""
        while self.given >= len(self.ready) and self._fill():
            pass
        piece = self.ready[self.given : self.given + PIECE]
        self.given += len(piece)
        return piece

    def _fill(self) -> bool:
        """Makes a block ready, or none where all of it has to wait for the next; False at the end of the file."""
        block = self.file.read(BLOCK)
        self.done += len(block)
        self.told(self.done)
        # From the second byte on: what stands before the first, perhaps a backslash, is in the block before.
        self.since_quote = 0 if _QUOTE.search(block, 1) else self.since_quote + len(block)
        if self.since_quote > LONGEST_VALUE:
            raise NotAnnotations(f"a single value of more than {LONGEST_VALUE >> 20} MiB")
        data = _LIST.sub(_count, self.kept + block)
        if self.pythons:
            data = _PYTHONS.sub(_replace_number, data)
        cut = _where_to_cut(data) if block else len(data)
        self.ready, self.kept, self.given = data[:cut], data[cut:], 0
        return bool(block)


def _count(found: re.Match[bytes]) -> bytes:
    """``found`` goes from the key to the next quote: behind the list stand a comma, or the ends of what it is in."""
    tail = found[2]
    end = tail.rfind(b"]", 0, tail.find(b"}") if b"}" in tail else len(tail)) + 1
    numbers = tail[:end]
    if numbers.translate(None, _OF_NUMBERS):
        return found[0]
    return b"%s%d%s" % (found[1], numbers.count(b",") + 1 if _DIGIT.search(numbers) else 0, tail[end:])


def _replace_number(found: re.Match[bytes]) -> bytes:
    number = found[0]
    return b'"%s"' % number if number[-1:].isdigit() and len(number) <= LONGEST_NUMBER else b"null"


def _where_to_cut(data: bytes) -> int:
    """Before a key or a list that goes on in the next block."""
    unfinished = _UNFINISHED.search(data, max(0, len(data) - LONGEST_LIST))
    if unfinished:
        return unfinished.start()
    word = data.rfind(b'"', max(0, len(data) - _LONGEST_KEY))
    number = _WITHIN_NUMBER.search(data, max(0, len(data) - LONGEST_NUMBER))
    return min(len(data) if word < 0 else word, number.start() if number else len(data))


def entries(file: CountedLists) -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: PLR0912  # one loop of 20 million turns
    """Every image and annotation as («images» or «annotations», what is wanted of it), in the order of the file.

    Texts and numbers are as they are. ``bbox`` is a list; ``segmentation`` the count of numbers in polygons;
    ``mask_bytes`` the length of a mask's text, or ``mask_counts`` how many run lengths it has.
    """
    import ijson

    events = ijson.basic_parse(file, use_float=True, buf_size=PIECE)
    depth, section, key, inner = 0, "", "", ""
    wanted: set[str] = set()
    entry: dict[str, Any] = {}
    try:
        for event, value in events:
            if event == "map_key":
                if depth == 3:
                    key, inner = value, ""
                elif depth == 1:
                    section = value
                    wanted = WANTED.get(section, set())
                else:
                    inner = value
            elif event in ("start_map", "start_array"):
                depth += 1
                if depth == 3 and event == "start_map":
                    entry = {}
                elif depth == 1 and event == "start_array":
                    raise NotAnnotations("a list, as results are, not annotations: expected images and annotations")
                elif depth > DEEPEST:
                    raise NotAnnotations(f"nested more than {DEEPEST} deep")
            elif event in ("end_map", "end_array"):
                if depth == 3 and wanted:
                    yield section, entry
                    entry = {}
                depth -= 1
            elif key in wanted and depth >= 3:
                if depth == 3:
                    entry[key] = value
                else:
                    _add_inner(entry, key, inner, depth, value)
    except ijson.JSONError as error:
        unfinished = file.pythons or "premature EOF" in str(error)
        raise (NotAnnotations if unfinished else NotStrictJson)(f"not JSON: {_first_line(error)}") from None


def _add_inner(entry: dict[str, Any], key: str, inner: str, depth: int, value: Any) -> None:
    """A value within a list or a mapping of an entry."""
    if key == "bbox":
        box = entry.setdefault("bbox", [])
        if isinstance(box, list) and len(box) < 5:
            box.append(value)
    elif key == "segmentation" and inner == "counts":
        if isinstance(value, str):
            entry["mask_bytes"] = len(value)
        elif depth == 4:  # counted before: the length of the list
            entry["mask_counts"] = value
        else:
            entry["mask_counts"] = entry.get("mask_counts", 0) + 1
    elif key == "segmentation" and not inner:
        entry["segmentation"] = entry.get("segmentation", 0) + 1


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
