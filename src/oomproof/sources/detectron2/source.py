"""A Detectron2 config: ``FILE.yaml``, a name of its zoo, or the script that makes one."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from oomproof.errors import InputError
from oomproof.files.looking import is_file, is_there
from oomproof.sources.source import Opening, Source

if TYPE_CHECKING:
    from oomproof.sources.job import Job


def _recognises(text: str) -> bool:
    if text.endswith((".yaml", ".yml")) or text.startswith("detectron2:") or _is_vitdet(text) or _is_published(text):
        return True
    if not text.endswith(".py"):
        return False
    from oomproof.sources.detectron2.script.lazy_config import is_lazy_config
    from oomproof.sources.detectron2.script.script import is_script

    return is_lazy_config(Path(text)) or is_script(Path(text))


def _is_vitdet(text: str) -> bool:
    """A LazyConfig of ViTDet by its name; a file of the user's own wins, unless the name says whose it is."""
    from oomproof.sources.detectron2.vitdet.published import is_name

    name = text.removeprefix("detectron2:")
    return is_name(name) and (name != text or not is_file(text))


def _is_published(text: str) -> bool:
    """A name of the zoo, which may be said without ``.yaml``; a folder of the user's own wins."""
    from oomproof.sources.detectron2.zoo.configs import find_published

    return find_published(text) is not None and not is_there(text)


def _open(opening: Opening) -> Job:
    text = opening.text
    if find_spec("torch") is None:
        raise InputError("Detectron2 jobs need PyTorch, which is not installed here: pip install 'oomproof[torch]'")
    if text.endswith(".py") and not text.startswith("detectron2:") and not _is_vitdet(text):
        from oomproof.sources.detectron2.script.lazy_config import is_lazy_config, refuse_lazy_config
        from oomproof.sources.detectron2.script.script import open_script

        if is_lazy_config(Path(text)):
            raise refuse_lazy_config(Path(text))
        gpus = str(opening.given.get("gpus", 1))  # what is no number is refused with the other settings
        count = int(gpus) if re.fullmatch(r"[0-9]{1,6}", gpus) else 1
        return open_script(Path(text), opening.pairs, opening.config_file, count)
    if opening.config_file:
        raise InputError(
            f"--config-file {opening.config_file} is for training scripts of Detectron2; {text} is not one"
        )
    if _is_vitdet(text):
        from oomproof.sources.detectron2.vitdet.job import open_vitdet

        return open_vitdet(text.removeprefix("detectron2:"), opening.pairs)
    from oomproof.sources.detectron2.job import open_detectron2

    name = text if text.startswith("detectron2://") else text.removeprefix("detectron2:")
    return open_detectron2(name, opening.pairs)


SOURCE = Source(
    name="Detectron2",
    forms=("a Detectron2 FILE.yaml, zoo name or train_net.py",),
    about="a config, with KEY VALUE pairs behind it as Detectron2's own tools take them",
    recognises=_recognises,
    open=_open,
    takes_pairs=True,
    takes_config_file=True,
)
