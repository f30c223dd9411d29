"""Lines as the program printed them: without colours, clocks, ranks, boxes and what log collectors put in front.

>>> clean_line("\\x1b[31m[rank3]: 2024-05-01 12:00:00,123 CUDA out of memory.\\x1b[0m")
('CUDA out of memory.', '3')
>>> clean_line('{"log":"Killed\\\\n","stream":"stderr","time":"2024-05-01T12:00:00Z"}')
('Killed', '')
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from oomproof.diagnosis.facts import Line
from oomproof.diagnosis.reading import Segment

LONGEST = 6000
"""characters of a line that are looked at"""

_ESCAPES = re.compile(
    # The escape character itself, or as text: of terminals, shells, Python, JSON, systemd and syslog.
    r"(?:\x1b|\^\[|\\x1[bB]|\\033|\\e|\\u001[bB]|#033|\u241b)"
    r"(?:\[[0-9;?]{0,48}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[()=>][0-9A-B]?)"
)
_ESCAPE_SIGNS = ("\x1b", "^[", "\\x1", "\\033", "\\e[", "\\u001", "#033", "\u241b")
# Bold and dim without their escape character, as a paste into a web form leaves them.
_BARE_COLOURS = re.compile(r"\[(?:\d{1,3};){0,4}\d{1,3}m")
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff]")
"""control characters, and the mark that Windows puts before a text"""
# Carriage returns and runs of backspaces (Keras) take a progress bar back to its beginning; #012 is syslog's newline.
_BREAKS = re.compile(r"\r\n|\n|\r|\x08{2,}|#012")
_WRITTEN_BREAKS = re.compile(r"(?<!\\)(?:\\r)?\\n")
_CONTAINER = re.compile(r'^\{"log": ?"(.*?)(?:\\r)?(?:\\n)?", ?"(?:stream|time)"')
_KUBERNETES = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ")
_RANK = re.compile(
    r"^(?:\[(?:rank|default|local_rank)[ :=]?(\d{1,5})\](?:\[\w{1,10}\])?:?\s?"  # torchrun
    r"|\[\d{1,4},(\d{1,5})\]<std(?:out|err)>:?\s?"  # mpirun
    r"|\[?(?:rank|RANK|Rank)[ :=]?(\d{1,5})\]?\s?[:|]\s?"
    r"|(?:\x20*(\d{1,4}): (?=\S|\x20))(?!\d)"  # srun -l
    r"|\((?:[\w.]{1,60} )?pid=(\d{1,8})(?:, ip=[\d.]{1,20})?\)\s?)"  # Ray
)
_CLOCK = re.compile(
    r"^\[?(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\d\d[-/]\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,9})?|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"|(?:\w{3} )?\w{3} {1,2}\d{1,2} \d\d:\d\d:\d\d(?: \d{4})?)\]?\s?[:|]?\s?"
)
_QUOTED = re.compile(r"^(?:> ?){1,4}")


def lines(segments: Iterable[Segment]) -> Iterator[Line]:
    """Every line of the kept parts, numbered as an editor numbers them."""
    for segment in segments:
        number = segment.line
        text = segment.data.decode("utf-8", "replace")
        for raw in text.split("\n"):
            for part in _split(_unwrap(raw)):
                if part.strip():
                    content, rank = clean_line(part)
                    if content:
                        yield Line(number, content, rank)
            number += 1


def _split(text: str) -> Iterator[str]:
    """The lines within a line: what a progress bar wrote over itself, and newlines that were written out."""
    if "\\n" in text and ("(most recent call last):\\n" in text or len(_WRITTEN_BREAKS.findall(text)) > 3):
        text = _WRITTEN_BREAKS.sub("\n", text)
    yield from _BREAKS.split(text)


def clean_line(raw: str) -> tuple[str, str]:
    """(text, rank): what the program itself wrote, and which process it was."""
    # Invisible characters go before the line is cut: a log that was truncated begins with a long hole of NULs.
    text = _CONTROLS.sub("", _remove_escapes(_unwrap(raw)))[:LONGEST]
    text = _KUBERNETES.sub("", text, count=1)
    if text.startswith(">"):
        text = _QUOTED.sub("", text)
    rank, text = _without_prefixes(text)
    return _without_box(text).rstrip(), rank


def _unwrap(raw: str) -> str:
    """The program's own text out of the JSON that Docker wraps around it."""
    if raw.startswith("{") and (found := _CONTAINER.match(raw)):
        return _unescape(found[1])
    return raw


def _remove_escapes(text: str) -> str:
    if any(sign in text for sign in _ESCAPE_SIGNS):
        text = _ESCAPES.sub("", text)
    return _BARE_COLOURS.sub("", text) if "[" in text else text


def _unescape(written: str) -> str:
    """The inside of a JSON string; half of one as it stands."""
    if "\\" not in written:
        return written
    import json

    try:
        text: str = json.loads(f'"{written}"', strict=False)
    except ValueError:
        return written.replace('\\"', '"')
    return text.replace("\t", " ").encode("utf-8", "replace").decode("utf-8")


def _without_prefixes(text: str) -> tuple[str, str]:
    """Ranks and clocks come in either order, and more than once."""
    rank = ""
    for _ in range(3):
        if found := _RANK.match(text):
            rank = rank or next(group for group in found.groups() if group is not None)
            text = text[found.end() :]
        elif found := _CLOCK.match(text):
            text = text[found.end() :]
        else:
            break
    return rank, text


def _without_box(text: str) -> str:
    """rich draws tracebacks in a box; the border would stand in the middle of wrapped sentences."""
    body = text.strip()
    if len(body) > 2 and body[0] in "│║┃" and body[-1] in "│║┃":
        return body[1:-1]
    if body.startswith(("╭", "╰", "┏", "┗")):
        return body.strip("╭╮╰╯─┏┓┗┛━ ")
    return text
