"""A trace does not load PyTorch's compiler, and leaves no trace of having kept it out."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOTHING_LEFT = """
assert not [name for name in sys.modules if name.startswith("torch._dynamo")], "left behind in sys.modules"
assert "_dynamo" not in vars(torch), "left behind in torch"
"""

COMPILES = """
compiled = torch.compile(lambda x: torch.relu(x) + 1, backend="eager", fullgraph=True)
assert compiled(torch.tensor([-1.0, 2.0])).tolist() == [1.0, 3.0]
"""

TRACE = """
import sys
import oomproof
oomproof.check("COCO-Detection/retinanet_R_50_FPN_1x.yaml", on="24GiB", gpus=16)
import torch
"""


def run(program: str) -> None:
    """A process of its own: here, other tests have loaded dynamo."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
@pytest.mark.slow
def test_a_check_does_without_dynamo_and_leaves_nothing() -> None:
    run(TRACE + NOTHING_LEFT + COMPILES)


@pytest.mark.thorough
@pytest.mark.slow
def test_torchvision_is_loaded_without_dynamo() -> None:
    names = "import sys\nfrom oomproof.sources.torchvision.job import model_names\nassert len(model_names()) > 50\n"
    run(names + "import torch\n" + NOTHING_LEFT + "import torchvision\n" + COMPILES)


@pytest.mark.thorough
@pytest.mark.slow
def test_who_asks_for_dynamo_gets_the_real_one() -> None:
    run(f"""
import sys
import torch
from oomproof.trace.torch.around.without_dynamo import without_dynamo

def plain(x):
    return x
marked = torch._disable_dynamo(plain)
with without_dynamo():
    import torch._dynamo
    assert type(torch._dynamo).__name__ == "_Later"
    assert marked(1) == 1 and vars(plain)["__dynamo_disable"] is plain
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1).zero_grad()
    assert "torch._dynamo.eval_frame" not in sys.modules, "loaded too early"
    import torch._dynamo.trace_rules
    assert type(sys.modules["torch._dynamo"]).__name__ == "module"
    assert torch._dynamo is sys.modules["torch._dynamo"] and torch._dynamo.config is sys.modules["torch._dynamo.config"]
    assert vars(plain)["__dynamo_disable"] is not plain and marked(2) == 2
    {COMPILES.strip().replace(chr(10), chr(10) + "    ")}
assert type(sys.modules["torch._dynamo"]).__name__ == "module"
""")


@pytest.mark.slow
def test_marks_are_taken_back() -> None:
    run(
        """
import sys
import torch
from oomproof.trace.torch.around.without_dynamo import without_dynamo

def plain(x):
    return x
marked = torch._disable_dynamo(plain)
try:
    with without_dynamo():
        assert marked(1) == 1
        raise ValueError
except ValueError:
    pass
assert "__dynamo_disable" not in vars(plain)
"""
        + NOTHING_LEFT
    )


@pytest.mark.thorough
@pytest.mark.slow
def test_loading_it_in_a_step_keeps_nothing_of_the_step_alive() -> None:
    """It meets exceptions on the way, whose frames lead back into the functions that are being run."""
    run("""
import gc, weakref
from oomproof.trace.torch.around.without_dynamo import without_dynamo
class Activation: pass
def forward():
    held = Activation()
    import torch._dynamo
    torch._dynamo.explain
    return weakref.ref(held)
with without_dynamo():
    gc.disable()
    assert forward()() is None
""")
