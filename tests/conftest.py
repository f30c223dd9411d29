"""For all tests: the same kernels and, in CI, the same random examples on every machine."""

import os
from importlib.util import find_spec

from hypothesis import settings

# Triton and TensorFlow both bring LLVM, and a process that loads Triton second crashes (triton 3.8, tensorflow 2.21).
if find_spec("triton"):
    import triton  # noqa: F401

# oneDNN's AVX2 kernels are those whose copies memory/scratch/cpu.py knows.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

# TensorFlow says no more than errors, and rewrites no kernel for oneDNN.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# One thread for operations: its order can be foretold. Said before any test makes TensorFlow begin.
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
