"""The size of an image from its header, against Pillow, which wrote it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from dataset_files import png
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from oomproof import InputError, read_dataset
from oomproof.data.annotations.image_header import Header, read_header

WRITTEN = {
    "JPEG": {},
    "JPEG progressive": {"progressive": True},
    "PNG": {},
    "GIF": {},
    "BMP": {},
    "WEBP": {},
    "WEBP lossless": {"lossless": True},
    "WEBP extended": {"lossless": True, "exif": b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0"},
}


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("size", [(1, 1), (17, 301), (640, 480)])
def test_against_pillow(form: str, size: tuple[int, int]) -> None:
    file = io.BytesIO()
    Image.new("RGB", size).save(file, form.split(maxsplit=1)[0], **WRITTEN[form])
    file.seek(0)
    assert read_header(file) == Header(*size)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("order", ["<", ">"])
def test_orientation(orientation: int, order: str) -> None:
    image, file = Image.new("RGB", (30, 20)), io.BytesIO()
    exif = Image.Exif()
    exif.endian = order
    exif[0x0112] = orientation
    image.save(file, "JPEG", exif=exif, icc_profile=bytes(200_000))
    file.seek(0)
    assert read_header(file) == Header(30, 20, orientation >= 5)


def test_sizes_of_no_image() -> None:
    assert read_header(io.BytesIO(png(2**31 - 1, 2**31 - 1))) is None
    assert read_header(io.BytesIO(png(0, 5))) is None
    assert read_header(io.BytesIO(b"")) is None
    assert read_header(io.BytesIO(b"\xff\xd8" + b"\xff" * 10_000_000)) is None


BEGINNINGS = (
    b"",
    b"\xff\xd8",
    b"\xff\xd8\xff\xe1\x00\x40Exif\0\0",
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    b"GIF89a",
    b"BM",
    b"RIFF....WEBPVP8 ",
    b"RIFF....WEBPVP8L",
    b"RIFF....WEBPVP8X",
)


@settings(deadline=None)
@given(st.sampled_from(BEGINNINGS), st.binary(max_size=100))
def test_any_bytes(beginning: bytes, rest: bytes) -> None:
    found = read_header(io.BytesIO(beginning + rest))
    assert found is None or (0 < found.width <= 1 << 20 and 0 < found.height <= 1 << 20)


def test_a_folder_with_other_files_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(3, 4))
    (tmp_path / "b.jpg").write_text("not an image")
    (tmp_path / "readme.txt").write_text("hello")
    dataset = read_dataset(tmp_path)
    assert (dataset.names, dataset.format) == (("a.png",), "image folder")
    assert {problem.kind for problem in dataset.problems} == {"image without a size", "image file that cannot be read"}
    (tmp_path / "a.png").unlink()
    with pytest.raises(InputError, match="no image of"):
        read_dataset(tmp_path)
