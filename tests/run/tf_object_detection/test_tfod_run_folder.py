"""The folder of checkpoints: a file in its place, no rights, a full disk."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oomproof.errors import InputError, JobError
from oomproof.run.tf_object_detection import child
from oomproof.run.tf_object_detection import folder as folders
from oomproof.run.tf_object_detection.checkpoints import Checkpoints
from oomproof.run.tf_object_detection.folder import find_reason, make_folder, require_writable
from oomproof.run.tf_object_detection.progress import ProgressWriter

FULL = (
    "{{function_node __wrapped__SaveV2_dtypes_306_device_/job:localhost/replica:0/task:0/device:CPU:0}} "
    "out/ckpt-3_temp/part-00000-of-00001.data-00000-of-00001.tempstate1419; No space left on device [Op:SaveV2]"
)


class OpError(Exception):
    """As tf.errors.OpError, of which every error of TensorFlow is one."""


def refuse(*_: Any) -> Any:
    raise OpError(FULL)


TF: Any = SimpleNamespace(
    errors=SimpleNamespace(OpError=OpError), summary=SimpleNamespace(create_file_writer=refuse)
)  # fmt: skip


def test_a_folder_that_is_there_or_can_be_made_is_taken(tmp_path: Path) -> None:
    require_writable(tmp_path)
    require_writable(tmp_path / "new" / "out")
    make_folder(tmp_path / "new" / "out")
    make_folder(tmp_path / "new" / "out")


def test_a_file_in_its_place_is_named(tmp_path: Path) -> None:
    file = tmp_path / "labels.pbtxt"
    file.write_text("")
    for given in (file, file / "out"):
        with pytest.raises(InputError, match=r"--model-dir \S+: \S+labels.pbtxt is a file; expected a folder"):
            require_writable(given)
        with pytest.raises(InputError, match="cannot be made: "):
            make_folder(given)


def test_a_folder_without_rights_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders.os, "access", lambda *_: False)
    with pytest.raises(InputError, match="cannot be written to; check its rights, or give another"):
        require_writable(tmp_path / "out")


def test_a_full_disk_ends_it_with_the_checkpoint_that_is_there() -> None:
    manager = SimpleNamespace(save=refuse, latest_checkpoint="out/ckpt-2", directory="out")
    state: Any = None
    with pytest.raises(JobError) as raised:
        Checkpoints(TF, manager, state, "").save()
    assert str(raised.value) == (
        "a checkpoint in out cannot be written: No space left on device; the last one is out/ckpt-2: make room, then "
        "start the same command again"
    )
    with pytest.raises(JobError, match=r"TensorBoard shows in .*train cannot be written: No space left on device"):
        ProgressWriter(TF, Path("out"), 10, 1, 0)


def test_a_label_map_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API goes on with protobuf's other format, and says: expected bytes, str found."""
    messages = pytest.importorskip("google.protobuf.struct_pb2")
    tf = SimpleNamespace(io=SimpleNamespace(gfile=SimpleNamespace(GFile=open)))
    monkeypatch.setattr(child, "part", lambda _: SimpleNamespace(StringIntLabelMap=messages.Struct))
    file = tmp_path / "labels.pbtxt"
    file.write_text('item { id: 1 name: "a')
    with pytest.raises(JobError, match=r"the label map .*labels.pbtxt cannot be read: ParseError: 1:"):
        child._require_label_map(tf, str(file))
    file.write_text("")
    child._require_label_map(tf, str(file))
    child._require_label_map(tf, "")


def test_reasons_are_found_in_all_kinds_of_errors() -> None:
    assert find_reason(OSError(30, "Read-only file system")) == "Read-only file system"
    assert find_reason(OpError("out/x: gone\nand more")) == "out/x: gone"
    assert find_reason(OpError()) == "OpError"
