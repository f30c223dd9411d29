"""Files of weights while a script is followed: what is there is read, what would be downloaded is done without, and
nothing is saved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlparse

import torch

from oomproof.changes.torch.trees import map_tensors
from oomproof.frameworks.torch import LoadedKeys

Note = Callable[[str], None]


@contextmanager
def weights_followed(note: Note) -> Iterator[None]:
    """``note`` hears what was done without."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(torch, "load", _make_load(torch.load)))
        stack.enter_context(patch.object(torch, "save", _make_save(note)))
        load_state = torch.nn.Module.load_state_dict
        stack.enter_context(patch.object(torch.nn.Module, "load_state_dict", _make_take(load_state)))
        download = torch.hub.load_state_dict_from_url
        stack.enter_context(patch.object(torch.hub, "load_state_dict_from_url", _make_download(download, note)))
        yield


class NotDownloaded(dict[str, Any]):
    """The weights of a file that is not here: their numbers have no part in a forecast."""


def _make_load(load: Callable[..., Any]) -> Callable[..., Any]:
    def load_to_device(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        places = set()

        def stay(storage: Any, place: str) -> Any:
            places.add(place.split(":", maxsplit=1)[0])
            return storage

        content = load(f, stay, *args, **kwargs)
        to_gpu = "cuda" in (places if map_location is None else str(map_location))
        return map_tensors(lambda tensor: tensor.to("cuda"), content) if to_gpu else content

    return load_to_device


def _make_save(note: Note) -> Callable[..., None]:
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        note(f"the script's torch.save({Path(str(f)).name if isinstance(f, (str, Path)) else 'a file'}) was left out")

    return save


def _make_download(download: Callable[..., Any], note: Note) -> Callable[..., Any]:
    def download_if_kept(url: str, model_dir: Any = None, *args: Any, **kwargs: Any) -> Any:
        name = kwargs.get("file_name") or (args[3] if len(args) > 3 else None) or Path(urlparse(url).path).name
        folder = Path(model_dir) if model_dir else Path(torch.hub.get_dir()) / "checkpoints"
        if (folder / name).is_file():
            return download(url, model_dir, *args, **kwargs)
        note(f"{name} was not downloaded: the weights it holds have no part in the forecast")
        return NotDownloaded()

    return download_if_kept


def _make_take(load: Callable[..., Any]) -> Callable[..., Any]:
    def take(module: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        return LoadedKeys([], []) if isinstance(state, NotDownloaded) else load(module, state, *args, **kwargs)

    return take
