"""For all tests: the same kernels and, in CI, the same random examples on every machine."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from oomproof.frameworks.side_by_side import before_tensorflow
from oomproof.sources.keras import xla

# Where processes share the work, each has one core: threads of several would wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

before_tensorflow()  # tests import TensorFlow themselves, in any order

# oneDNN's AVX2 kernels are those whose copies memory/scratch/cpu.py knows.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

# TensorFlow says no more than errors, and rewrites no kernel for oneDNN.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
# One thread for operations: its order can be foretold. Said before any test makes TensorFlow begin.
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")

# XLA's answers are kept for the next process: for these tests in a folder of their own.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="oomproof-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# Ultralytics keeps its settings in the user's folder.
os.environ.setdefault("YOLO_CONFIG_DIR", os.environ["XDG_CACHE_HOME"])

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(autouse=True)
def _without_xla(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keras jobs are compiled with XLA in the tests of XLA only: one takes as long as fifty others."""
    if "xla" not in request.path.name:
        monkeypatch.setattr(xla, "is_xla_installed", lambda: False)


@pytest.fixture(autouse=True, scope="module")
def _models_go_with_their_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a file of tests keeps with ``functools.cache`` goes when it ends: one process runs a hundred such files."""
    yield
    for kept in list(vars(request.module).values()):
        if hasattr(kept, "cache_clear") and not str(kept.__module__).startswith("oomproof"):
            kept.cache_clear()


@pytest.fixture
def double_precision() -> Iterator[None]:
    """For steps that are compared: rounding can neither hide a mistake nor flip a decision."""
    import torch

    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(usual)
