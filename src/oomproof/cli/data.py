"""``oomproof data``: what is in a dataset, and which of its images are the worst?"""

from __future__ import annotations

from typing import Annotated

import typer

from oomproof.cli.arguments import AsJson, Debug, Quiet
from oomproof.cli.screen import at_long_work, show, write
from oomproof.errors import InputError

MOST_WORST = 1000


def data(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="COCO's JSON, a Pascal VOC folder, YOLO's data.yaml or folder, TFRecords of the Object Detection API "
            "(a file, or a folder of them), or a folder of images.",
            show_default=False,
        ),
    ],
    *,
    images: Annotated[
        str,
        typer.Option(
            "--images",
            metavar="DIR",
            help="The folder of the images, as in --images train2017/: their headers say how large they really are.",
            show_default=False,
        ),
    ] = "",
    split: Annotated[
        str,
        typer.Option(
            "--split",
            metavar="NAME",
            help="One part of a dataset that has several: train, val.  [default: YOLO train, else all]",
            show_default=False,
        ),
    ] = "",
    worst: Annotated[int, typer.Option("--worst", metavar="N", help="How many of the worst images to name.")] = 5,
    as_json: AsJson = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """What is in the dataset? Sizes, objects an image, the worst images.

    A batch of crowded or huge images needs far more memory than the usual one, and training fails when it comes. This
    reads the annotations, not the images: of those, at most the header. Entries that are broken are counted and named.
    Nothing is written, and files of any size are read in little memory.

    Exit code 0: read, be it with broken entries. 1: bad input, or nothing usable in it. 130: interrupted.

    \b
    Examples:
      oomproof data annotations.json
      oomproof data annotations.json --images train2017/ --worst 20
      oomproof data VOCdevkit/VOC2012 --split train
      oomproof data coco128/data.yaml --split val --json
      oomproof data coco_train.record-00000-of-00100
    """
    if not 0 <= worst <= MOST_WORST:
        raise InputError(f"--worst must be 0 to {MOST_WORST}; got {worst}")
    from oomproof.data.annotations.profile import profile
    from oomproof.data.annotations.read import read_dataset

    with at_long_work(quiet or as_json) as say:
        dataset = read_dataset(path, images or None, split=split, progress=say)
        figures = profile(dataset, worst)
    from oomproof.report import data as report

    if as_json:
        from oomproof.report.as_json import text

        write(text(report.document(dataset, figures)))
    else:
        show(report.report(dataset, figures))
