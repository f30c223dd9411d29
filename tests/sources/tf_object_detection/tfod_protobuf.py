"""Protobuf's own reader with the API's own messages, where both are installed; TensorFlow is not needed."""

from __future__ import annotations

import ast
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import pytest

MISSING = (
    "protobuf and tf-models-research-object-detection are not both installed "
    "(pip install protobuf; pip install --no-deps tf-models-research-object-detection==2.8.0.post1)"
)


@cache
def pipeline_message() -> Any:
    """The class of a whole config; skips the test where a package is missing.

    The package's own modules are of protobuf 3 and refuse newer ones, so only the descriptors in them are taken.
    """
    found = importlib.util.find_spec("object_detection")
    if found is None or not found.submodule_search_locations or importlib.util.find_spec("google.protobuf") is None:
        pytest.skip(MISSING)
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    folder = Path(found.submodule_search_locations[0]) / "protos"
    files = {}
    for path in folder.glob("*_pb2.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "serialized_pb" and isinstance(node.value, ast.Constant):
                file = descriptor_pb2.FileDescriptorProto.FromString(node.value.value)
                files[file.name] = file
    pool = descriptor_pool.DescriptorPool()

    def add(name: str) -> None:
        file = files.pop(name, None)
        if file is not None:
            for needed in file.dependency:
                add(needed)
            pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())

    for name in list(files):
        add(name)
    kind = pool.FindMessageTypeByName("object_detection.protos.TrainEvalPipelineConfig")
    return message_factory.GetMessageClass(kind)


def merge(text: str) -> Any:
    """The config as the API reads it; raises text_format.ParseError."""
    from google.protobuf import text_format

    return text_format.Merge(text, pipeline_message()())
