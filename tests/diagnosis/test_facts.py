"""What is read out of messages: the numbers, whose memory, the frames, how far it was."""

from __future__ import annotations

from pathlib import Path

import pytest

import oomproof
from oomproof.diagnosis.amounts import amount, tensor, text
from oomproof.diagnosis.causes.outside import outside
from oomproof.diagnosis.facts import Failure
from oomproof.diagnosis.gather import gather
from oomproof.diagnosis.lines import clean_line, lines
from oomproof.diagnosis.reading import keep_parts

GIB = 1 << 30


NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has "
    "a total capacity of 20.00 GiB of which "
    "{free} is free. {others}Including non-PyTorch memory, this process has {process} "
    "memory in use. Of the allocated memory "
    "{allocated} is allocated by PyTorch, and {idle} is reserved by PyTorch but unallocated."
)


def message(**given: str) -> str:
    usual = {
        "asked": "1.00 GiB",
        "free": "512.00 MiB",
        "others": "",
        "process": "19.50 GiB",
        "allocated": "18.00 GiB",
        "idle": "512.00 MiB",
    }
    return NEW.format(**{**usual, **given})


def main_of(log: str) -> Failure:
    found = gather(keep_parts([log.encode()])).main
    assert found is not None
    return found


def test_the_five_eras_say_the_same() -> None:
    head, tail = (
        "CUDA out of memory. Tried to allocate 1.00 GiB",
        "10.00 GiB total capacity; 8.00 GiB already allocated; 512.00 MiB free",
    )
    cached = main_of(f"RuntimeError: {head} (GPU 0; {tail}; 256.00 MiB cached)")
    reserved = main_of(f"RuntimeError: {head} (GPU 0; {tail}; 8.25 GiB reserved in total by PyTorch)")
    newest = main_of(
        f"torch.OutOfMemoryError: {head}. GPU 0 has a total capacity of 10.00 GiB of "
        "which 512.00 MiB is free. Of the allocated "
        "memory 8.00 GiB is allocated by PyTorch, and 256.00 MiB is reserved by PyTorch but unallocated."
    )
    for found in (cached, reserved, newest):
        assert (found.requested, found.total, found.free) == (GIB, 10 * GIB, GIB // 2)
        assert (found.allocated, found.reserved, found.idle) == (8 * GIB, 33 * GIB // 4, GIB // 4)


@pytest.mark.parametrize(
    ("given", "held"),
    [
        (
            {"others": "Process 77 has 9.00 GiB memory in use. ", "process": "10.50 GiB", "allocated": "9.00 GiB"},
            9 * GIB,
        ),
        # In a container: 0 bytes, and this very process under a number from outside.
        ({"process": "0 bytes"}, GIB),
        ({"process": "0 bytes", "others": "Process 9 has 19.00 GiB memory in use. "}, 0),
        # Another container's processes are not listed at all.
        ({"process": "8.00 GiB", "allocated": "7.00 GiB"}, 23 * GIB // 2),
        # WSL: the driver knows nothing and says 16 EiB.
        ({"process": "17179869184.00 GiB"}, GIB),
    ],
    ids=["listed", "container", "listed under another number", "hidden", "wsl"],
)
def test_what_others_hold(given: dict[str, str], held: int) -> None:
    found = outside(main_of(message(**given)))
    assert abs((found[0] if found else 0) - held) <= GIB // 100


@pytest.mark.parametrize(
    ("idle", "asked", "cause"),
    [
        ("4.00 GiB", "1.00 GiB", "fragmentation"),
        ("900.00 MiB", "1.00 GiB", "batch_too_big"),
        ("40.00 MiB", "20.00 MiB", "batch_too_big"),
    ],
)
def test_fragmentation_only_where_the_idle_reserve_could_have_served(idle: str, asked: str, cause: str) -> None:
    """The hint about it is printed in every message; the last case has a full card and a few MiB left over."""
    allocated = "14.50 GiB" if idle == "4.00 GiB" else "18.40 GiB"
    log = (
        message(idle=idle, asked=asked, allocated=allocated)
        + " If reserved but unallocated memory is large try setting max_split_size_mb"
    )
    assert oomproof.explain(f"batch_size=8\n{log}").cause == cause


def test_the_run_that_is_asked_about_is_the_last() -> None:
    first = "batch_size=16\n" + message(asked="3.00 GiB") + "\n"
    again = "".join(f"Epoch: [0]  [ {step}/90]\n" for step in range(3))
    found = oomproof.explain(first + again + "batch_size=8\n" + message(asked="2.00 GiB"))
    assert found.facts["requested"] == 2 * GIB
    assert found.facts["batch"] == 8


def test_the_message_that_tells_most_wins_among_neighbours() -> None:
    log = (
        "[rank1]: RuntimeError: CUDA error: out of memory\n[rank0]: "
        f"{message()}\nSignal 9 (SIGKILL) received by PID 7\n"
    )
    found = oomproof.explain(log)
    assert (found.facts["family"], found.facts["requested"], found.facts["rank"]) == ("cuda", GIB, "0")


def test_interleaved_ranks_keep_their_own_sentences() -> None:
    parts = [message(asked=f"{rank}.00 GiB").split(". ") for rank in (2, 3)]
    lines = [f"[rank{rank}]: {parts[rank][index]}." for index in range(len(parts[0])) for rank in (0, 1)]
    found = main_of("\n".join(lines))
    assert (found.requested, found.total, found.rank) == (2 * GIB, 20 * GIB, "0")


def test_the_frames_of_a_traceback() -> None:
    head = "Traceback (most recent call last)"
    plain = f'{head}:\n  File "a.py", line 3, in f\n    g(x)\n  File "b.py", line 9, in g\n    return x @ y\n'
    boxed = f"╭──── {head} ────╮\n│ /home/u/a.py:3 in f         │\n│ /home/u/b.py:9 in g         │\n╰────╯\n"
    for stack in (plain, boxed):
        assert [frame.place for frame in main_of(stack + message()).frames] == ["a.py:3 f", "b.py:9 g"]


@pytest.mark.parametrize(
    ("line", "text_", "rank"),
    [
        ("[rank12]: boom", "boom", "12"),
        ("[1,3]<stderr>:boom", "boom", "3"),
        ("(train pid=99, ip=10.0.0.1) boom", "boom", "99"),
        ("2024-01-01T00:00:00.1Z stderr F boom", "boom", ""),
        ("[2024-01-01 00:00:00,123] boom", "boom", ""),
        ("\x1b[1m\x1b[31mboom\x1b[0m", "boom", ""),
        ("│ boom │", " boom", ""),
        ("boom\x00", "boom", ""),
        ("\x00" * 9000 + "boom", "boom", ""),
        ("\x1b[0m" * 3000 + "boom", "boom", ""),
        ("\\x1b[31mboom\\x1b[0m", "boom", ""),
        ("\\u001b[31mboom\\033[0m", "boom", ""),
        ("^[[1;31mboom^[[0m", "boom", ""),
        ("#033[31mboom#033[0m", "boom", ""),
    ],
)
def test_what_is_put_before_lines(line: str, text_: str, rank: str) -> None:
    assert clean_line(line) == (text_, rank)


@pytest.mark.parametrize(
    "log",
    [
        "one#012two#012three",
        "one\rtwo\r\nthree",
        "one\b\b\b\btwo\b\b\b\bthree",
        '{"log":"one\\ntwo\\nthree\\n","stream":"stderr"}',
        "Traceback (most recent call last):\\none\\ntwo\\nthree",
    ],
    ids=["syslog", "carriage returns", "backspaces", "docker", "written out"],
)
def test_lines_within_a_line(log: str) -> None:
    found = [line.text for line in lines(keep_parts([log.encode()]).segments)]
    assert found[-3:] == ["one", "two", "three"]


def test_a_path_of_windows_is_not_cut() -> None:
    assert [line.text for line in lines(keep_parts([b"reading C:\\new\\names.txt"]).segments)] == [
        "reading C:\\new\\names.txt"
    ]


def test_amounts() -> None:
    assert amount("392.00 MiB") == 392 << 20
    assert amount("1,024 bytes") == 1024
    assert amount("nonsense") is None
    assert amount("9" * 400) == amount("9" * 300 + " GiB")
    assert tensor((16, 128, 256, 256), "float") == 16 * 128 * 256 * 256 * 4
    assert tensor((2, 3), "half") == 12
    assert text(1536 << 20) == "1.50 GiB"


def test_where_the_log_is_read_from(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("Shuffle buffer filled.\nKilled\n")
    found = oomproof.explain(path)
    assert (
        found
        == oomproof.explain(str(path))
        == oomproof.explain(path.read_text())
        == oomproof.explain(path.read_bytes())
    )
    assert oomproof.explain(["Shuffle buffer filled.\n", "Killed\n"]).cause == "host_shuffle_buffer"
    with pytest.raises(oomproof.InputError, match="no file"):
        oomproof.explain(tmp_path / "none.log")
    with pytest.raises(oomproof.InputError, match="folder"):
        oomproof.explain(tmp_path)


def test_the_folder_and_the_function_share_a_name() -> None:
    import oomproof.diagnosis.reading as module

    assert module.keep_parts is keep_parts
    assert oomproof.explain("Killed").cause == "host_too_small"


def test_the_crowd_in_the_last_batch_is_named() -> None:
    found = oomproof.explain(Path(__file__).parents[2] / "examples" / "oom.log")
    assert found.cause == "gt_boxes"
    assert "1,911 boxes" in found.why
