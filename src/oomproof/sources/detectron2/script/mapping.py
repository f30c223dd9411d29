"""Mappers of a script, which make images of files: whether INPUT of the config says how large these become."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from oomproof.sources.detectron2.script import looking_up
from oomproof.sources.detectron2.script.contents import Call, Class, Function, Items, Mapper, Partial, Parts, Unknown
from oomproof.sources.detectron2.script.knowing import shorten_code

if TYPE_CHECKING:
    from oomproof.sources.detectron2.script.reader import Reader

_BY_CONFIG = re.compile(r"build_augmentation|INPUT\.MIN_SIZE_TRAIN")
"""code that takes the sizes of the config"""
_OF_ITS_OWN = re.compile(r"Resize|Rotation|Extent|Pad|Scale|Expand|resize")
"""calls after which an image may be larger than INPUT says"""
_NOT_LARGER = re.compile(
    r"(\w+\.)*(RandomFlip|RandomBrightness|RandomContrast|RandomSaturation|RandomLighting|RandomCrop)\("
)


MAPPERS = ("DatasetMapper", "MapDataset")


def make_mapper(reader: Reader, name: str, call: Call) -> Mapper:
    """``DatasetMapper(cfg, augmentations=[...])``: where it has a list of its own, INPUT resizes nothing. Behind
    ``MapDataset(dataset, mapper)`` stands its mapper."""
    if name == "MapDataset":
        return Mapper(find_sizes(reader, call.get("map_func", 1)))
    if not {"augmentations", "**"} & call.words.keys():
        return Mapper()
    value = call.words.get("augmentations")
    content = reader.memory.get(value)
    items = content.items if isinstance(content, Items) else (value,)
    codes = [each.why if isinstance(each, Unknown) else "" for each in items]
    resized = any(_BY_CONFIG.search(code) for code in codes)
    if resized and all(_BY_CONFIG.search(code) or _NOT_LARGER.match(code) for code in codes):
        return Mapper()
    return Mapper(f"{reader.at(call.node)}: {shorten_code(call.node)}")


def find_sizes(reader: Reader, mapper: Any) -> str:
    """The code that decides how large images become; empty where INPUT does."""
    if mapper is None or isinstance(mapper, Mapper):
        return mapper.sizes if mapper is not None else ""
    if isinstance(mapper, Partial):
        return find_sizes(reader, mapper.function)
    content = reader.memory.get(mapper)
    cls = content.above if isinstance(content, Parts) and content.above is not None else mapper
    if isinstance(made := reader.memory.get(cls), Class):
        inherits = "DatasetMapper" in looking_up.foreign_bases(reader, cls)
        return _read_code(made.node, made.file, inherits=inherits)
    if isinstance(mapper, Function):
        return _read_code(mapper.node, mapper.file)
    return f"mapper {mapper.why}" if isinstance(mapper, Unknown) else "its mapper"


def _read_code(node: ast.AST, file: str, *, inherits: bool = False) -> str:
    every = [each for each in ast.walk(node) if isinstance(each, (ast.Call, ast.Attribute, ast.Name))]
    by_config = any(_BY_CONFIG.search(ast.unparse(each)) for each in every)
    own = [
        each
        for each in every
        if isinstance(each, ast.Call)
        and _OF_ITS_OWN.search(ast.unparse(each.func))
        and not _BY_CONFIG.search(ast.unparse(each))
    ]
    if not own and (inherits or by_config):
        return ""
    said = f" ({shorten_code(own[0])})" if own else ""
    return f"{file}:{getattr(node, 'lineno', 0)}: {getattr(node, 'name', 'a function')}{said}"
