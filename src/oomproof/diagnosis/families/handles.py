"""Failures to make a cuDNN or cuBLAS handle, or to find an algorithm: nearly always a full GPU that does not say so."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oomproof.diagnosis import frames
from oomproof.diagnosis.amounts import SIZE, find_amount
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import quote
from oomproof.diagnosis.patterns import Pattern, any_of

_CUDA = r"cudnn|cublas(?:lt)?|cusolver\w{0,3}|cusparse|cufft|curand|nvrtc"
LIBRARIES = rf"(?:{_CUDA}|gpu(?:solver|blas)\w{{0,3}}|rocblas|hipblas|miopen)"
TRIGGER = any_of(
    # `Create cublas handle failed`, `could not create cudnn handle`, `Cannot create Cublas handle`: any framework's.
    rf"(?i:(?:creat|initiali[sz])\w{{0,5}} (?:a |the )?{LIBRARIES}[\w ]{{0,12}}(?:handle)?)",
    rf"(?i:{LIBRARIES}(?:create|init)\w{{0,20}}\()",
    r"CUDNN_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED|INTERNAL_ERROR)",
    r"CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)",
    r"CUSOLVER_STATUS_(?:ALLOC_FAILED|INTERNAL_ERROR|NOT_INITIALIZED)",
    r"(?:CUSPARSE|ROCBLAS|HIPBLAS)_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED|MEMORY_ERROR)",
    r"rocblas_status_memory_error",
    r"miopenStatusAllocFailed",
    r"CUFFT_ALLOC_FAILED",
    r"Failed to get convolution algorithm",
    r"[Uu]nable to find a valid cuDNN algorithm",
    r"cuDNN isn't found \w+ algo",  # Darknet's
    r"Blas x?GEMM[\w ]{0,12} launch failed",
    r"No algorithm worked!",
    r"Profiling failure on CUDNN engine[^\n]{0,80}(?:RESOURCE_EXHAUSTED|[Oo]ut of memory)",
    r"All algorithms tried for [^\n]{0,200} failed",
    r"Failed to determine best cudnn convolution algorithm",
    r"DNN library (?:initialization failed|is not found)",
    r"[Uu]nable to find an engine to execute this computation",
    r"cuDNN launch failure",
    r"Cuda failure (?:\d{1,4} )?'out of memory'",  # NCCL's last error
    r"MIOpen Error:[^\n]{0,160}Memory not available",
    r"[Uu]nable to find a suitable algorithm for doing",
)
_FAILED = Pattern(
    r"fail|could not|cannot|can't|unable|error|not initialized|won't be available|exception", re.IGNORECASE
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
_WORKSPACE = Pattern(
    r"valid cuDNN algorithm|isn't found \w+ algo"
    r"|find an engine|No algorithm worked|Profiling failure|All algorithms tried"
    r"|best cudnn convolution|suitable algorithm|MIOpen Error",
    re.IGNORECASE,
)
_REQUESTED = Pattern(
    rf"trying to allocate (?:{SIZE}|(\d{{1,20}}) bytes)|Allocating (\d{{1,20}}) bytes exceeds|buffer: (\d{{1,20}})"
)
_TRIAL = Pattern(r"Profiling failure on CUDNN engine")
_HANDLE = Pattern(r"\bhandle\b")
_IN_CONVOLUTION = Pattern(r"conv", re.IGNORECASE)


def read(lines: Sequence[Line], at: int) -> Failure | None:
    line = lines[at]
    if not _FAILED.search(line.text) and "_STATUS_" not in line.text and not _WORKSPACE.search(line.text):
        return None
    of_tensorflow = bool(_TENSORFLOW.search(line.text))
    stack = frames.before(lines, at)
    workspace = bool(_WORKSPACE.search(line.text)) or (
        "CUDNN_STATUS_ALLOC_FAILED" in line.text
        and any(_IN_CONVOLUTION.search(f"{frame.name} {frame.code}") for frame in stack[-4:])
    )
    workspace = workspace and not _HANDLE.search(line.text)
    return Failure(
        family="handle",
        kind="workspace" if workspace else "tensorflow" if of_tensorflow else "torch",
        where="device",
        line=line.number,
        quote=quote(line),
        at=at,
        rank=line.rank,
        # One algorithm that finds no room is a try; that none does is said on another line.
        fatal=not _TRIAL.search(line.text),
        requested=find_amount(_REQUESTED, line.text),
        op="tensorflow" if of_tensorflow else "",
        frames=stack,
    )
