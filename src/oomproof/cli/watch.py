"""``oomproof watch``: is a running training leaking, and when will it die?"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oomproof.cli.arguments import Debug, Ram, parse_ram, require_writable
from oomproof.cli.screen import write
from oomproof.errors import InputError

if TYPE_CHECKING:
    from oomproof.run.monitor.verdict import StepReading, Verdict

LEAKS = 2


def watch(
    pid: Annotated[int, typer.Argument(metavar="PID", help="The training's process; its children count too.")],
    *,
    every: Annotated[float, typer.Option("--every", metavar="SECONDS", help="Time between readings.")] = 1.0,
    seconds: Annotated[
        float, typer.Option("--for", metavar="SECONDS", help="How long to watch; 0: until it ends.")
    ] = 0.0,
    ram: Ram = None,
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE.jsonl", help="Keep every reading as a line of JSON.")
    ] = None,
    debug: Debug = False,
) -> None:
    """A running training: leak or spike, and when it will die.

    Reads the host memory of the process and all its children (shared pages once, pages of files such as libraries not
    at all), /dev/shm, and what they hold on NVIDIA GPUs. Says so when the verdict changes, and sums up at the end.
    Nothing is changed in the process.

    Exit code 0: no leak was seen. 2: one was. 1: bad input.

    \b
    Examples:
      oomproof watch 12345
      oomproof watch 12345 --every 5 --log memory.jsonl
      oomproof watch 12345 --for 600 --ram 32GiB
    """
    import psutil

    from oomproof.run.monitor.verdict import judge

    if every <= 0 or seconds < 0:
        raise InputError("--every wants seconds above 0, and --for from 0 on")
    if not psutil.pid_exists(pid):
        raise InputError(f"there is no process {pid}; `ps aux | grep train` lists yours")
    limit = parse_ram(ram) if ram is not None else psutil.virtual_memory().total
    if log is not None:
        require_writable(log, "--log")
    host: list[StepReading] = []
    device: list[StepReading] = []
    said, begin = "", time.monotonic()
    stream = log.open("a") if log is not None else None
    try:
        while True:
            now = time.monotonic() - begin
            if not _read(pid, now, host, device, stream):
                write(f"process {pid} has ended\n")
                break
            found = _worse(judge(device), judge(host, limit))
            if found.kind not in ("short", said) and found.kind in ("leak", "spike"):
                said = found.kind
                write(f"{now:.0f} s: {found.kind}: {_of_readings(found.why)}\n")
            if seconds and now >= seconds:
                break
            time.sleep(every)
    except KeyboardInterrupt:
        pass
    finally:
        if stream is not None:
            stream.close()
    found = _worse(judge(device), judge(host, limit))
    write(f"{len(host)} readings: {found.kind}: {_of_readings(found.why)}\n")
    raise typer.Exit(LEAKS if found.kind == "leak" else 0)


def _of_readings(words: str) -> str:
    """Steps cannot be seen from outside."""
    return words.replace("step", "reading")


def _worse(device: Verdict, host: Verdict) -> Verdict:
    return next((each for each in (device, host) if each.kind in ("leak", "spike")), host)


def _read(pid: int, now: float, host: list[StepReading], device: list[StepReading], stream: Any) -> bool:
    """Whether the process is still there."""
    import psutil

    from oomproof.run.monitor.meters import device_bytes, host_bytes, shm_bytes
    from oomproof.run.monitor.verdict import StepReading

    try:
        gone = psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        gone = True
    if gone:
        return False
    held, on_device = host_bytes(pid), device_bytes(pid)
    host.append(StepReading(len(host) + 1, now, held, held))
    if on_device:
        device.append(StepReading(len(host), now, on_device, on_device))
    if stream is not None:
        about = {"seconds": round(now, 3), "host": held, "device": on_device, "shm": shm_bytes()}
        print(json.dumps(about), file=stream, flush=True)
    return True
