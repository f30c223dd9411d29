"""Failures to make a cuDNN or cuBLAS handle, or to find an algorithm: nearly always a full GPU that does not say so."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oomproof.diagnosis import frames
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import quote
from oomproof.diagnosis.patterns import Pattern, any_of

TRIGGER = any_of(
    r"(?:[Cc]ould not|[Ff]ailed to) create (?:cudnn|cublas|cusolver|cuDNN|cuBLAS)\w* ?handle",
    r"CUDNN_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED|INTERNAL_ERROR)",
    r"CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)",
    r"CUSOLVER_STATUS_(?:ALLOC_FAILED|INTERNAL_ERROR|NOT_INITIALIZED)",
    r"CUFFT_ALLOC_FAILED",
    r"Failed to get convolution algorithm",
    r"[Uu]nable to find a valid cuDNN algorithm",
    r"Blas x?GEMM[\w ]{0,12} launch failed",
    r"No algorithm worked!",
    r"DNN library (?:initialization failed|is not found)",
    r"[Uu]nable to find an engine to execute this computation",
    r"cuDNN launch failure",
)
_TENSORFLOW = any_of(
    r"tensorflow",
    r"stream_executor",
    r"cuda_dnn\.cc",
    r"cuda_blas\.cc",
    r"Blas x?GEMM",
    r"convolution algorithm",
    r"No algorithm worked",
    r"DNN library",
    r"xla",
    r"cuDNN launch failure",
)
_WORKSPACE = Pattern(r"valid cuDNN algorithm|find an engine|No algorithm worked", re.IGNORECASE)
_IN_CONVOLUTION = Pattern(r"conv", re.IGNORECASE)


def read(lines: Sequence[Line], at: int) -> Failure | None:
    line = lines[at]
    of_tensorflow = bool(_TENSORFLOW.search(line.text))
    stack = frames.before(lines, at)
    workspace = bool(_WORKSPACE.search(line.text)) or (
        "CUDNN_STATUS_ALLOC_FAILED" in line.text
        and any(_IN_CONVOLUTION.search(f"{frame.name} {frame.code}") for frame in stack[-4:])
    )
    workspace = workspace and "handle" not in line.text
    return Failure(
        family="handle",
        kind="workspace" if workspace else "tensorflow" if of_tensorflow else "torch",
        where="device",
        line=line.number,
        quote=quote(line),
        at=at,
        rank=line.rank,
        op="tensorflow" if of_tensorflow else "",
        frames=stack,
    )
