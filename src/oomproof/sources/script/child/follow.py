"""Runs a script as Python would, under a session that follows it, and tells the parent what comes of it."""

from __future__ import annotations

import base64
import ctypes
import json
import os
import runpy
import signal
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from oomproof.errors import InternalError, JobError, OomproofError
from oomproof.sources.script.child.importing import import_edited, when_imported
from oomproof.sources.script.child.network import list_refused_hosts, refuse_network
from oomproof.sources.script.child.options import watch_click, watch_options
from oomproof.sources.script.child.tensorboard import write_without_tensorflow
from oomproof.sources.script.child.writes import keep_writes
from oomproof.trace.user_code import blaming_user_code, say_what_to_install

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_READ_AS_CODE = ("detectron2", "object_detection")
"""packages whose scripts a source of ours reads without running them"""
_SHARDING = {
    "torch/distributed/fsdp": "FSDP",
    "torch/distributed/_composable": "FSDP",
    "deepspeed": "DeepSpeed",
    "torch/distributed/tensor": "tensor parallelism",
    "torch/distributed/pipelining": "pipeline parallelism",
    "torch/distributed/device_mesh.py": "a mesh of GPUs",
}
"""by the folder of its code"""
_LEAVE = os._exit
"""the real one: while the script runs, os._exit is an exception (user_code.py)"""


class Told:
    """What goes to the parent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._process = os.getpid()

    def say(self, **facts: Any) -> None:
        if os.getpid() == self._process:  # not from workers that were forked
            os.write(self._descriptor, json.dumps(facts).encode() + b"\n")

    def say_doing(self, text: str) -> None:
        self.say(doing=text)

    def end(self, **facts: Any) -> NoReturn:
        """The last word. Then every thread stands still, and the parent ends this process with all that it started."""
        self.say(**facts, done=True)
        if os.getpid() == self._process:
            os.kill(os.getpid(), signal.SIGSTOP)
        _LEAVE(1)


def follow_script(folder: Path, descriptor: int) -> None:
    request = json.loads((folder / "request.json").read_text())
    _end_with_parent(request["parent"])
    os.set_inheritable(descriptor, False)
    told = Told(descriptor)
    kept = keep_writes(folder / "kept", allowed=(folder,))
    edits = {file: base64.b64decode(content) for file, content in request["edits"].items()}
    for file, content in edits.items():
        with kept.open_file(file, "wb") as other:
            other.write(content)
    import_edited(edits)
    kept.watch_settings(lambda files: told.say(read=files))
    refuse_network()
    write_without_tensorflow()
    watch_options(told.say)
    when_imported("click", lambda click: watch_click(click, told.say))
    following = Following(request, folder, told)
    when_imported("torch", following.begin)
    when_imported("tensorflow", following.begin_tensorflow)
    when_imported("keras", following.begin_keras)
    try:
        with blaming_user_code():
            _run(request)
    except (KeyboardInterrupt, GeneratorExit) as error:  # of the script's own making
        told.end(error=f"{request['name']} raised {type(error).__name__} before its second step")
    except OomproofError as error:
        if following.has_ended_well(error) or following.kept is not None:
            following.leave()
        _leave_with_error(told, request, error)
    else:
        following.leave()


class Following:
    """The sessions, each from the moment when the script has imported its framework."""

    def __init__(self, request: dict[str, Any], folder: Path, told: Told) -> None:
        self.request, self.folder, self.told = request, folder, told
        self.session: Any = None
        """of PyTorch"""
        self.functions: Any = None
        """of TensorFlow"""
        self.fits: Any = None
        """of Keras"""
        self.kept: Any = None
        """the Timeline that needs the most of those that were kept"""
        self._process = os.getpid()
        self._context: Any = None

    def begin(self, torch: ModuleType) -> None:
        from oomproof.trace.torch.session.card import Card
        from oomproof.trace.torch.session.session import session_opened

        card = self.request["card"]
        self._context = session_opened(
            Card(card["name"], card["total"], tuple(card["capability"]), self.request["gpus"]),
            self.save,
            ranks=self.request["ranks"],
            dialect=self.request["dialect"],
            validate=self.request["validate"],
            batches=self.request["batches"] or None,
            progress=self.told.say_doing,
        )
        self.session = self._context.__enter__()

    def begin_tensorflow(self, tf: ModuleType) -> None:
        from oomproof.sources.script.child.tensorflow_files import keep_tensorflow_writes
        from oomproof.trace.tensorflow.session.card import pretend_card
        from oomproof.trace.tensorflow.session.session import FunctionSession, TimelineDestination

        card = self.request["card"]
        capability = tuple(card["capability"])
        keep_tensorflow_writes(tf)
        destination = TimelineDestination(self.save, self.keep, self.finish)
        self.functions = FunctionSession(
            tf,
            destination,
            self.told.say_doing,
            dialect=self.request["dialect"],
            capability=capability,
            validate=self.request["validate"],
        )
        self.functions.runtime = pretend_card(tf, card["name"], capability)
        self.functions.watch()
        if "keras" in sys.modules:  # TensorFlow imports it
            self._connect(sys.modules["keras"])

    def begin_keras(self, keras: ModuleType) -> None:
        from oomproof.memory.cards.devices import Device
        from oomproof.sources.script.child.keras_fit import KerasFits

        device = self.request["device"]
        wanted = {
            "device": Device(**{**device, "capability": tuple(device["capability"])}) if device else None,
            "dialect": self.request["dialect"],
            "jit_compile": self.request["jit_compile"],
            "validate": self.request["validate"],
        }
        self.fits = KerasFits(self.keep, self.finish, self.told.say_doing, wanted)
        self._connect(keras)
        self.fits.watch(keras)

    def _connect(self, keras: ModuleType) -> None:
        """The sessions of TensorFlow and Keras know of each other, whichever was imported first."""
        if self.functions is not None and self.fits is not None:
            self.fits.runtime = self.functions.runtime
            self.fits.hands_off = lambda busy: setattr(self.functions, "busy", busy)
            self.functions.watch_models(keras)

    def keep(self, timeline: Any) -> None:
        """Keeps a Timeline, while the script goes on: it may come to a step that needs more."""
        from oomproof.memory.files import timeline_file

        if os.getpid() != self._process:
            return
        if self.kept is None or timeline.peak().bytes >= self.kept.peak().bytes:
            self.kept = timeline
            timeline_file.save(timeline, self.folder / "step.timeline")
        self.told.say(kept=True, doing="looking for another training in the script")

    def finish(self) -> None:
        """Ends the process at once, with what was kept."""
        if os.getpid() == self._process:
            self.told.end()

    def save(self, timeline: Any) -> None:
        """Keeps the Timeline and ends the process at once: no ``finally`` of the script, no handler, no checkpoint."""
        from oomproof.memory.files import timeline_file
        from oomproof.memory.files.activity_file import save_activity

        if os.getpid() != self._process:
            return  # a fork of the script
        timeline_file.save(timeline, self.folder / "step.timeline")
        save_activity(timeline, self.folder / "step.activity")
        self.told.end()

    def has_ended_well(self, error: OomproofError) -> bool:
        """``sys.exit()`` at the end of a script is not a failure."""
        cause = error.__cause__
        return isinstance(cause, SystemExit) and cause.code in (None, 0)

    def leave(self) -> None:
        """The script has ended by itself."""
        if self.functions is not None:
            self.functions.keep_validation()
        if self.kept is not None:
            self.finish()
        if self.functions is not None and self.functions.steps:
            self.save(self.functions.build())
        steps = self.session.steps.count() if self.session is not None else 0
        if steps:
            self.session.note(f"the script took {steps} step, no more: what a second one adds is not seen")
            self.save(self.session.build())
        name = self.request["name"]
        imported = self.session or self.functions or self.fits
        why = "no optimizer has stepped" if imported else "it never imported PyTorch, TensorFlow or Keras"
        self.told.end(error=f"{name} ended without a training step: {why}")


def _run(request: dict[str, Any]) -> None:
    """The script in ``__main__``, as ``python FILE`` or ``python -m MODULE`` has it."""
    kind, target, arguments = request["kind"], request["target"], request["arguments"]
    sys.argv = [target if kind in ("file", "notebook") else "-m" if kind == "module" else "-c", *arguments]
    if kind == "module":
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, "" if kind == "code" else str(Path(target).resolve().parent))
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    if kind == "notebook":
        from oomproof.sources.script.child.notebook import read_notebook

        cells = read_notebook(Path(target))
        for name, source in cells:
            exec(compile(source, name, "exec"), vars(main))
        return
    if kind == "code":
        exec(compile(target, "<string>", "exec"), vars(main))
        return
    main.__file__ = target
    with open(target, "rb") as file:  # noqa: PTH123 (the script's own open, as Python would)
        code = compile(file.read(), target, "exec", dont_inherit=True)
    exec(code, vars(main))


def _leave_with_error(told: Told, request: dict[str, Any], error: OomproofError) -> None:
    text, cause = str(error), error.__cause__
    if isinstance(cause, SystemExit):  # argparse has printed why
        sys.stderr.flush()
        if not isinstance(cause.code, int):  # sys.exit("a message"), os._exit
            told.end(error=f"{request['name']} ended before its second step: {cause.code}")
        told.end(code=cause.code)
    if sharding := find_sharding(cause):
        shared = f"{request['name']} shares its model out among GPUs by {sharding}, which is not followed"
        instead = "forecast it on one GPU, or with DistributedDataParallel, whose every rank holds the whole model"
        told.end(error=f"{shared}: {instead}")
    if isinstance(cause, ModuleNotFoundError):
        text = text.removesuffix(say_what_to_install(cause)) + f"; it was run with {sys.executable}"
        if (cause.name or "").partition(".")[0] in _READ_AS_CODE:
            text += (
                f". Without {cause.name}, `oomproof check FILE.py` reads the config that a script makes; a notebook's "
                "is the one that `jupyter nbconvert --to script` writes"
            )
    if not isinstance(error, InternalError):
        text = text.replace("the job raised", f"{request['name']} raised", 1)
        if hosts := list_refused_hosts():
            text += (
                f"; it asked for {hosts}, and a script has no network while it is checked: let it download what it "
                "needs once, then check it again"
            )
    kind = type(error).__name__ if isinstance(error, (JobError, InternalError)) else "JobError"
    told.end(error=text, kind=kind)


def find_sharding(error: BaseException | None) -> str:
    """What shares a model out among GPUs, if the error was raised inside of it."""
    frames = traceback.extract_tb(error.__traceback__ if error else None)
    names = [frame.filename.replace(os.sep, "/") + "/" for frame in frames]
    return next((name for folder, name in _SHARDING.items() for file in names if f"/{folder}/" in file), "")


def _end_with_parent(parent: int) -> None:
    """Killed when the parent dies, however it dies."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what its children leave behind is found below it
    if os.getppid() != parent:  # it has died before
        _LEAVE(1)
