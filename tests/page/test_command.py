"""The command on a page, as a shell takes it."""

from __future__ import annotations

import doctest
import shlex

from oomproof.cli import pages
from oomproof.page import command
from oomproof.page.command import Typed, write_command
from oomproof.sources.job import Setting


def test_what_is_written_beside_the_code_holds() -> None:
    for module in (command, pages):
        failed, tried = doctest.testmod(module)
        assert tried and not failed


def test_names_that_a_shell_would_read_are_quoted() -> None:
    typed = Typed("my net.py:job; rm -rf $HOME", "a b.yaml", {"note": "`ls` 'x'"}, ["MODEL.WEIGHTS", "a b"])
    begin, end = write_command(typed, (), ())
    assert shlex.split(" ".join([begin, *end])) == [
        "oomproof", "check", "my net.py:job; rm -rf $HOME", "--config-file", "a b.yaml", "--set", "note=`ls` 'x'",
        "MODEL.WEIGHTS", "a b",
    ]  # fmt: skip


def test_what_sliders_say_is_left_to_them() -> None:
    settings = [Setting("batch", 1, "", given_as="--batch {value}"), Setting("SOLVER.IMS_PER_BATCH", 1, "")]
    typed = Typed("net.py:job", given={"batch": "4", "depth": 3}, keys=["SOLVER.IMS_PER_BATCH", "8", "SEED", "1"])
    assert write_command(typed, settings, {"batch", "SOLVER.IMS_PER_BATCH"}) == (
        "oomproof check net.py:job --set depth=3",
        ["SEED 1"],
    )
