"""A file that is replaced is never half there, stays the file it was, and what the user had is beside it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomproof.files import replacing
from oomproof.files.replacing import CannotReplace, find_place, new_content, replace_file

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="owners, links and pipes as Linux has them")


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.yaml"
    path.write_text("theirs")
    return path


def kept(path: Path) -> Path:
    return path.with_name(path.name + ".orig")


def test_what_the_user_had_is_kept_through_many_writes(file: Path) -> None:
    for number in range(3):
        assert replace_file(file, f"ours {number}".encode())
    assert (file.read_text(), kept(file).read_text()) == ("ours 2", "theirs")
    assert names(file.parent) == ["a.yaml", "a.yaml.orig"]


def test_what_is_kept_is_renewed_once_the_user_changed_the_file(file: Path) -> None:
    replace_file(file, b"ours")
    file.write_text("theirs again")
    replace_file(file, b"ours again")
    replace_file(file, b"ours at last")
    assert (file.read_text(), kept(file).read_text()) == ("ours at last", "theirs again")


def test_nothing_is_written_when_nothing_changes(file: Path) -> None:
    before = file.stat()
    assert not replace_file(file, b"theirs")
    assert file.stat() == before
    assert names(file.parent) == ["a.yaml"]


def test_a_file_that_changed_since_it_was_read_is_left_alone(file: Path) -> None:
    with pytest.raises(CannotReplace, match="has changed since it was read"):
        replace_file(file, b"ours", expected=b"what it was")
    assert file.read_text() == "theirs"
    file.unlink()
    with pytest.raises(CannotReplace, match="has changed since it was read"):
        replace_file(file, b"ours", expected=b"theirs")
    assert names(file.parent) == []


@LINUX
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755])
def test_mode_is_kept_and_the_copy_is_no_more_readable(file: Path, mode: int) -> None:
    file.chmod(mode)
    replace_file(file, b"ours")
    assert file.stat().st_mode & 0o7777 == kept(file).stat().st_mode & 0o7777 == mode
    kept(file).chmod(0o666)
    file.write_text("a secret")
    replace_file(file, b"ours again")
    assert kept(file).read_text() == "a secret"
    assert kept(file).stat().st_mode & 0o7777 == mode


@LINUX
def test_the_copy_follows_a_file_that_is_made_private(file: Path) -> None:
    replace_file(file, b"ours")
    file.chmod(0o600)
    replace_file(file, b"ours again")
    assert (kept(file).read_text(), kept(file).stat().st_mode & 0o777) == ("theirs", 0o600)


@LINUX
@pytest.mark.skipif(sys.platform == "linux" and os.geteuid() != 0, reason="root alone may set what others may not")
def test_attributes_are_kept_behind_one_that_cannot_be(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        os.setxattr(file, "user.b", b"1")
    except OSError:
        pytest.skip("this file system has no attributes")
    monkeypatch.setattr(replacing.os, "listxattr", lambda path: ["trusted.none", "user.b"])
    replace_file(file, b"ours")
    assert os.getxattr(file, "user.b") == b"1"


@LINUX
def test_a_folder_that_has_been_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(CannotReplace, match="has been removed"):
        find_place(Path("a.yaml"))


@LINUX
def test_the_copy_is_private_from_its_first_byte(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.chmod(0o600)
    modes = []
    real = os.fsync

    def seen(handle: int) -> None:
        modes.append(os.fstat(handle).st_mode & 0o777)
        real(handle)

    monkeypatch.setattr(replacing.os, "fsync", seen)
    monkeypatch.setattr(replacing, "_sync_folder", lambda folder: None)
    replace_file(file, b"ours")
    assert modes == [0o600, 0o600]


@LINUX
@pytest.mark.skipif(sys.platform == "linux" and os.geteuid() != 0, reason="root alone may give files away")
def test_owner_is_kept(file: Path) -> None:
    os.chown(file, 1234, 4321)
    replace_file(file, b"ours")
    for each in (file, kept(file)):
        assert (each.stat().st_uid, each.stat().st_gid) == (1234, 4321)


def test_new_files_are_ordinary(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    replace_file(tmp_path / "new" / "b", b"ours")
    assert (tmp_path / "new" / "b").stat().st_mode == plain.stat().st_mode
    assert names(tmp_path / "new") == ["b"]


@LINUX
def test_symbolic_links_are_followed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.yaml"
    link.symlink_to("../a.yaml")
    replace_file(link, b"ours")
    assert link.is_symlink()
    assert (file.read_text(), kept(file).read_text()) == ("ours", "theirs")
    with new_content(link) as stream:
        stream.write(b"more")
    assert link.is_symlink()
    assert file.read_text() == "more"


@LINUX
def test_a_link_in_the_place_of_the_copy_is_not_followed(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("not ours to touch")
    kept(file).symlink_to(other)
    replace_file(file, b"ours")
    assert (other.read_text(), kept(file).read_text()) == ("not ours to touch", "theirs")


@LINUX
def test_what_is_better_left_alone(file: Path, tmp_path: Path) -> None:
    os.link(file, tmp_path / "second")
    with pytest.raises(CannotReplace, match="2 names"):
        replace_file(file, b"ours")
    assert (tmp_path / "second").read_text() == "theirs"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "round").symlink_to("round")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "round", Path("/dev/null"), Path("a\0b")):
        with pytest.raises(OSError):
            find_place(path)
    assert names(tmp_path) == ["a.yaml", "pipe", "round", "second"]


@pytest.mark.parametrize("at", [1, 3])
def test_a_full_disk_leaves_everything_as_it_was(file: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sync is that of the copy, the second that of its folder, the third that of the file."""
    replace_file(file, b"ours")
    file.write_text("theirs again")
    calls = 0

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(replacing.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_file(file, b"ours again")
    assert file.read_text() == "theirs again"
    assert kept(file).read_text() in ("theirs", "theirs again")
    assert names(file.parent) == ["a.yaml", "a.yaml.orig"]


@LINUX
def test_many_processes_at_once(file: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from oomproof.files.replacing import replace_file\n"
        "for turn in range(10): replace_file(Path(sys.argv[1]), (sys.argv[2] * 50000 + str(turn)).encode())"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(file), letter]) for letter in "abc"]
    assert [each.wait() for each in running] == [0, 0, 0]
    assert kept(file).read_text() == "theirs"
    text = file.read_text()
    assert text[:50000] == text[0] * 50000 and text[50000:] == "9"
    assert names(file.parent) == ["a.yaml", "a.yaml.orig"]
