"""Single values as protobuf's Python reader takes them from a text, and as people write them into one."""

from __future__ import annotations

import math
import re
from typing import Any

from oomproof.sources.tf_object_detection.config.schema import FieldType
from oomproof.sources.tf_object_detection.config.tokens import shorten

_RANGES = {"int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1)}
_DESCRIPTIONS = {
    "int32": "a whole number",
    "uint32": "a whole number of 0 or more",
    "float": "a number",
    "bool": "true or false",
    "string": "a text",
}
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "int32": (int,),
    "uint32": (int,),
    "float": (int, float),
    "bool": (bool,),
    "string": (str,),
}
_BOOLS = {"true": True, "t": True, "True": True, "1": True, "false": False, "f": False, "False": False, "0": False}
_OCTAL = re.compile(r"-?0[0-9]+")
_LARGEST_FLOAT = 3.4028235677973366e38
"""from here on the 32-bit numbers of the API are infinite"""
_LONGEST_NUMBER = 400
"""characters; Python refuses to read integers of more than 4300 digits"""
_LONGEST_TEXT = 1 << 16
"""characters; the longest in a config are paths and patterns"""
_SIMPLE_ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", "'": "'", '"': '"',
}  # fmt: skip
_ESCAPE = re.compile(
    r"\\(?:u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|x(?P<x>[0-9a-fA-F]{1,2})|(?P<octal>[0-7]{1,3})|(?P<one>.))"
)


def read_literal(parts: tuple[str, ...], field: FieldType) -> Any:
    """What a value's pieces mean for a field; raises ValueError with what was expected."""
    is_text = parts[0][0] in "'\""
    if sum(map(len, parts)) > (_LONGEST_TEXT if is_text else _LONGEST_NUMBER):
        raise ValueError(f"expected {describe_type(field)}, got one of {sum(map(len, parts))} characters")
    if field.type == "string":
        if not is_text:
            raise ValueError(f"expected a text in quotes, got {shorten(parts[0])}")
        return _read_texts(parts)
    if is_text:
        raise ValueError(f"expected {describe_type(field)}, got the text {shorten(' '.join(parts))}")
    return _read_word(parts[0], field)


def _read_word(word: str, field: FieldType) -> Any:
    found: Any = None
    try:
        if field.type in _RANGES:
            found = _read_integer(word)
        elif field.type == "float":
            found = _read_float(word)
        elif field.type == "bool":
            found = _BOOLS.get(word)
        elif word in field.enum:
            found = word
        else:
            number = int(word, 0)
            found = next((name for name, each in field.enum.items() if each == number), None)
    except ValueError:
        found = None
    low, high = _RANGES.get(field.type, (-math.inf, math.inf))
    if found is not None and field.type in _RANGES and found > high:
        raise ValueError(f"expected {describe_type(field)}, at most {high}; got {shorten(word)}")
    if found is None or (field.type in _RANGES and found < low):
        raise ValueError(f"expected {describe_type(field)}, got {shorten(word)}")
    return found


def describe_type(field: FieldType) -> str:
    if field.enum:
        return f"one of {', '.join(field.enum)}"
    if field.message is not None:
        return f"a message of type {field.type} in braces"
    return _DESCRIPTIONS[field.type]


def _read_integer(word: str) -> int:
    if re.fullmatch(r"-?0[0-9]+", word):  # octal as in C, which Python reads no longer
        return int(word, 8)
    return int(word, 0)


def _read_float(word: str) -> float:
    if _OCTAL.match(word):
        raise ValueError(word)
    if re.fullmatch(r"-?inf(?:inity)?f?", word, re.IGNORECASE):
        value = -math.inf if word.startswith("-") else math.inf
    elif re.fullmatch(r"nanf?", word, re.IGNORECASE):
        value = math.nan
    else:
        try:
            value = float(word)
        except ValueError:
            value = float(word.rstrip("fF"))  # 1.0f, as in C
    return math.copysign(math.inf, value) if abs(value) >= _LARGEST_FLOAT else value


def _read_texts(parts: tuple[str, ...]) -> str:
    """Texts side by side, with their escapes: these stand for bytes, and the bytes must be UTF-8 in the end."""
    try:
        return b"".join(_unescape(part[1:-1]) for part in parts).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("expected a text whose escapes make UTF-8") from None


def _unescape(text: str) -> bytes:
    pieces, at = [], 0
    for found in _ESCAPE.finditer(text):
        pieces += [text[at : found.start()].encode(), _meaning(found)]
        at = found.end()
    return b"".join([*pieces, text[at:].encode()])


def _meaning(found: re.Match[str]) -> bytes:
    point = found["u"] or found["U"]
    if point is not None:
        code = int(point, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise ValueError(f"expected a character, got {found.group()}")
        return chr(code).encode()
    if found["x"] is not None:
        return bytes([int(found["x"], 16)])
    if found["octal"] is not None:
        code = int(found["octal"], 8)
        if code > 255:
            raise ValueError(f"expected at most \\377, got {found.group()}")
        return bytes([code])
    one = found["one"]
    if one in "xuUN":
        raise ValueError(f"expected digits after \\{one}")
    return _SIMPLE_ESCAPES.get(one, f"\\{one}").encode()  # other escapes stay as they are, as in Python


def write_literal(value: Any, field: FieldType, quote: str = '"') -> str:
    """A value that ``check_literal`` let through, as a text-format value."""
    if field.type == "string":
        escaped = "".join(_escape(each, quote) for each in value)
        return f"{quote}{escaped}{quote}"
    if field.type == "bool":
        return "true" if value else "false"
    return repr(value) if field.type == "float" else str(value)


def _escape(character: str, quote: str) -> str:
    if character in ("\\", quote):
        return f"\\{character}"
    if character == "\n":
        return "\\n"
    if character.isprintable():
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode())


def check_literal(value: Any, field: FieldType) -> Any:
    """A Python value as the field keeps it; raises ValueError with what was expected."""
    fits = isinstance(value, _PYTHON_TYPES.get(field.type, (str,))) and (
        field.type == "bool" or not isinstance(value, bool)
    )
    low, high = _RANGES.get(field.type, (-math.inf, math.inf))
    if fits and field.type in _RANGES:
        fits = low <= value <= high
    if fits and field.enum:
        fits = value in field.enum
    if fits and field.type == "string":
        fits = not any(0xD800 <= ord(each) < 0xE000 for each in value)
    if not fits:
        raise ValueError(f"expected {describe_type(field)}, got {shorten(repr(value))}")
    if field.type != "float":
        return value
    number = float(min(max(value, -(2**130)), 2**130)) if isinstance(value, int) else value
    return math.copysign(math.inf, number) if abs(number) >= _LARGEST_FLOAT else number
