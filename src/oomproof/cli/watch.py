"""``oomproof watch``: is a running training leaking, and when will it die?"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oomproof.cli.arguments import Debug, Ram, parse_ram, require_writable
from oomproof.cli.screen import complain, write
from oomproof.errors import InputError

if TYPE_CHECKING:
    import psutil

    from oomproof.run.monitor.verdict import StepReading, Verdict

LEAKS = 2
WORST = ("leak", "spike", "growing")


@dataclass
class _Seen:
    """What was read so far: of all processes, of the children among them, and on GPUs."""

    host: list[StepReading] = field(default_factory=list)
    workers: list[StepReading] = field(default_factory=list)
    device: list[StepReading] = field(default_factory=list)
    count: int = 0


def watch(
    pid: Annotated[int, typer.Argument(metavar="PID", help="The training's process; its children count too.")],
    *,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", help="Time between readings.")] = 1.0,
    seconds: Annotated[
        float, typer.Option("--for", metavar="SECONDS", help="How long to watch; 0: until it ends.")
    ] = 0.0,
    warm_up: Annotated[
        float,
        typer.Option(
            "--warm-up",
            metavar="SECONDS",
            help="What warming up may take: growth is a leak if it goes on after it, for as long again.",
        ),
    ] = 120.0,
    ram: Ram = None,
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE.jsonl", help="Keep every reading as a line of JSON.")
    ] = None,
    debug: Debug = False,
) -> None:
    """A running training: leak or spike, and when it will die.

    Reads the host memory of the process and all its children (shared pages once, pages of files such as libraries not
    at all), /dev/shm, and what they hold on NVIDIA GPUs. Says so when the verdict changes, and sums up at the end.
    Steps cannot be seen from outside: growth in the first seconds may be warming up, and is called a leak only if it
    goes on after --warm-up for as long again. Nothing is changed in the process.

    Exit code 0: no leak was seen. 2: one was. 1: bad input.

    \b
    Examples:
      oomproof watch 12345
      oomproof watch 12345 --every 5 --log memory.jsonl
      oomproof watch 12345 --for 600 --ram 32GiB
    """
    import psutil

    from oomproof.run.monitor.from_outside import News

    if every <= 0 or seconds < 0 or warm_up < 0:
        raise InputError("--every wants seconds above 0, --for and --warm-up from 0 on")
    try:
        process = psutil.Process(pid)
    except (psutil.Error, ValueError):
        raise InputError(f"there is no process {pid}; `ps aux | grep train` lists yours") from None
    _refuse_unreadable(process)
    limit = parse_ram(ram) if ram is not None else psutil.virtual_memory().total
    if log is not None:
        require_writable(log, "--log")
    seen, news, ended = _Seen(), News(), False
    begin = time.monotonic()
    stream = log.open("a") if log is not None else None
    try:
        while True:
            now = time.monotonic() - begin
            if not _read(process, now, seen, stream):
                write(f"process {pid} has ended\n")
                ended = True
                break
            found = _judge(seen, limit, warm_up)
            if news.is_news(found):
                write(f"{now:.0f} s: {found.kind}: {_of_readings(found.why)}\n")
            if seconds and now >= seconds:
                break
            time.sleep(every)
    except KeyboardInterrupt:
        pass
    finally:
        if stream is not None:
            stream.close()
    found = news.sum_up(_judge(seen, limit, warm_up, ended=ended))
    write(f"{seen.count} readings: {found.kind}: {_of_readings(found.look_back() if ended else found.why)}\n")
    raise typer.Exit(LEAKS if found.kind == "leak" else 0)


def _of_readings(words: str) -> str:
    """Steps cannot be seen from outside."""
    return words.replace("step", "reading")


def _judge(seen: _Seen, limit: int | None, warm_up: float, *, ended: bool = False) -> Verdict:
    """The worse of the device's and the host's."""
    from oomproof.run.monitor.from_outside import count_with_workers, judge_from_outside

    count = count_with_workers(seen.workers)
    workers = seen.workers[:count]
    host = judge_from_outside(seen.host[:count], limit, workers=workers, warm_up=warm_up, ended=ended)
    device = judge_from_outside(seen.device, warm_up=warm_up, ended=ended)
    return next((each for kind in WORST for each in (device, host) if each.kind == kind), host)


def _refuse_unreadable(process: psutil.Process) -> None:
    """What has no memory to watch, and what may only be read in part."""
    import psutil

    from oomproof.run.monitor.meters import own_and_children_bytes, tells_shares

    try:
        ended = process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        ended = True
    if not ended and not own_and_children_bytes(process.pid)[0]:
        raise InputError(f"process {process.pid} ({process.name()}) has no memory of its own that could be read")
    if not ended and not tells_shares(process.pid):
        complain(
            f"process {process.pid} is another user's, or this system does not tell shares: pages that its processes "
            "share are counted for each of them"
        )


def _read(process: psutil.Process, now: float, seen: _Seen, stream: Any) -> bool:
    """Whether the process is still there; another that was given its number is not it."""
    import psutil

    from oomproof.run.monitor.meters import device_bytes, own_and_children_bytes, shm_bytes
    from oomproof.run.monitor.verdict import StepReading, keep_reading

    try:
        gone = not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        gone = True
    own, children = (0, 0) if gone else own_and_children_bytes(process.pid)
    if not own:  # it may have ended while it was read
        return False
    held, on_device = own + children, device_bytes(process.pid)
    seen.count += 1
    keep_reading(seen.host, StepReading(seen.count, now, held, held))
    keep_reading(seen.workers, StepReading(seen.count, now, children, children))
    if on_device:
        keep_reading(seen.device, StepReading(seen.count, now, on_device, on_device))
    if stream is not None:
        about = {"seconds": round(now, 3), "host": held, "workers": children, "device": on_device, "shm": shm_bytes()}
        print(json.dumps(about), file=stream, flush=True)
    return True
