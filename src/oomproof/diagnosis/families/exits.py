"""A process that was killed with signal 9, as shells, launchers and supervisors say it."""

from __future__ import annotations

from collections.abc import Sequence

from oomproof.diagnosis import frames
from oomproof.diagnosis.facts import Failure, Line
from oomproof.diagnosis.families.message import quote
from oomproof.diagnosis.patterns import Pattern, any_of

TRIGGER = any_of(
    r"^\s*(?:\[\d+\]\s*[+-]?\s*\d*\s*)?Killed(?:: 9)?(?:\s+(?:python|torchrun|\S+/python"
    r"|accelerate|nohup|CUDA_|sh |bash ).{0,200})?\s*$",
    r"(?:[\d\]]|it/s|s/it|s/step)\s?Killed(?:: 9)?\s*$",  # behind a progress bar, which ends without a newline
    r"^\S{0,200}: line \d+:\s+\d+ Killed",
    r"^\s*(?:已杀死|已殺死|Getötet|Убито|強制終了|Processus arrêté|Terminado \(killed\))(?:\s|$)",
    r"\d+ [Kk]illed\s+\S",
    r"\d\s+(?:已杀死|已殺死|Getötet|Убито|強制終了|Processus arrêté|Terminado \(killed\))(?:\s|$)",
    r"SIGKILL",
    r"[Ss]ignal[ :=]{1,2}9\b",
    r"exit ?(?:code|status)?\W{0,6}(?:137|-9)\b",
    r"exited with (?:code )?(?:137|-9)\b",
    r"(?:return ?code|code|status)\W{1,5}(?:137|-9)\b",
    r"zsh: killed",
    r"returned non-zero exit status (?:137|-9)\b",
)
_BY_HAND = Pattern(
    r"TIME LIMIT|PREEMPT|preempt|user request|scancel|KeyboardInterrupt|Ctrl-C|deadline|DEADLINE|evicted for|spot", 0
)
_CODE = Pattern(r"\b137\b|-9\b")
AROUND = 12


def read(lines: Sequence[Line], at: int) -> Failure | None:
    line = lines[at]
    near = lines[max(0, at - AROUND) : at + AROUND]
    if any(_BY_HAND.search(each.text) for each in near):
        return None
    code = _CODE.search(line.text)
    return Failure(
        family="exit",
        kind="killed",
        where="host",
        line=line.number,
        quote=quote(line),
        at=at,
        rank=line.rank,
        exit_code=int(code[0]) if code else 137,
        frames=frames.before(lines, at) if "Error" in line.text else (),
    )
