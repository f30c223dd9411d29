"""Entries that are broken: counted, and the first few named, so that a million of them cost no more than one."""

from __future__ import annotations

from dataclasses import dataclass, field

from oomproof.data.annotations.dataset import BrokenEntry

EXAMPLES = 3
LONGEST = 200

NO_SIZE = "image without a size"
NO_FILE = "image file that cannot be read"
OTHER_SIZE = "annotated size is not the file's"
DUPLICATE_IMAGE = "image id that came before"
DUPLICATE_OBJECT = "annotation id that came before"
BROKEN_IMAGE = "image entry that cannot be used"
UNKNOWN_IMAGE = "annotation of an unknown image"
NO_BOX = "annotation without a usable box"
NO_AREA = "box without area"
OUTSIDE = "box outside its image"
DAMAGED = "file damaged; what comes before was read"
UNREADABLE = "annotation file that cannot be read"
WRONG_CHECKSUM = "record with a wrong checksum"
TRUNCATED = "truncated record"
NOT_AN_EXAMPLE = "record that is not a tf.Example of an image"


@dataclass
class Problems:
    """A tally by kind."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, example: str, count: int = 1) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + count
        named = self.examples.setdefault(kind, [])
        if len(named) < EXAMPLES:
            named.append(printable(example))

    def list_entries(self) -> tuple[BrokenEntry, ...]:
        """Most frequent first."""
        order = sorted(self.counts, key=lambda kind: -self.counts[kind])
        return tuple(BrokenEntry(kind, self.counts[kind], tuple(self.examples[kind])) for kind in order)


def printable(text: str, longest: int = LONGEST) -> str:
    """One line that does a terminal no harm, whatever a file calls its images.

    >>> printable("a.jpg"), printable("a\\x1b[2J\\n.jpg")
    ('a.jpg', 'a\\\\x1b[2J\\\\n.jpg')
    """
    text = text if len(text) <= longest else f"{text[: longest // 2 - 1]}..{text[1 - longest // 2 :]}"
    return text if text.isprintable() else text.encode("unicode_escape", "replace").decode("ascii")
