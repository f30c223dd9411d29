"""GPUs as XLA's compiler is told of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from oomproof.memory.cards.devices import find_device, list_devices
from oomproof.trace.xla.compiler import ENVIRONMENT
from oomproof.trace.xla.installed import is_xla_installed
from oomproof.trace.xla.targets import CHIPS, GENERATIONS, OLDEST, USUAL, target_for

PARSE = """
import json, os, sys
from jax.experimental import topologies
found = []
for text in json.load(sys.stdin):
    described = topologies.get_topology_desc(
        platform="cuda", topology_name="described", topology="1x1x1", target_config=text
    )
    found.append(described.devices[0].device_kind)
print(json.dumps(found), flush=True)
os._exit(0)
"""


def test_what_is_described_is_in_the_table_of_devices() -> None:
    devices = {device.name: device for device in list_devices()}
    assert set(CHIPS) <= set(devices)
    assert all(devices[name].capability in GENERATIONS for name in CHIPS)
    assert {devices[name].capability for name in CHIPS} == set(GENERATIONS)


@pytest.mark.parametrize(
    "name",
    ["T4", "2080 Ti", "3060", "3080", "3090", "4060", "4070", "4080", "4090", "A10", "A100", "L4", "H100", "5090"],
)
def test_common_cards_are_compiled_for_as_themselves(name: str) -> None:
    target = target_for(find_device(name))
    assert target.gpu == find_device(name).name
    assert not target.note
    assert f"device_memory_size: {find_device(name).total}" in target.text


def test_other_cards_are_compiled_for_as_their_nearest_relative() -> None:
    described = {device.name: device for device in list_devices()}
    for device in list_devices():
        target = target_for(device)
        assert (target.gpu == device.name) == (not target.note)
        if device.capability >= OLDEST and device.capability in GENERATIONS:
            assert described[target.gpu].capability == device.capability
    assert "the nearest GPU to the A16" in target_for(find_device("A16")).note
    assert "makes no code for compute capability 7.0" in target_for(find_device("V100")).note
    assert target_for(find_device("8GiB")).gpu == target_for(None).gpu == USUAL


@pytest.mark.slow
@pytest.mark.skipif(not is_xla_installed(), reason="needs oomproof[xla]")
def test_the_compiler_takes_every_description() -> None:
    targets = [target_for(find_device(name)) for name in CHIPS]
    done = subprocess.run(
        [sys.executable, "-P", "-c", PARSE],
        input=json.dumps([target.text for target in targets]),
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == [target.gpu for target in targets]
