"""What TensorFlow would write by its own C++ code, which Kept cannot lead elsewhere: logs are left out, caches go to a
folder that is thrown away, folders are made by Python."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch


def keep_tensorflow_writes(tf: Any) -> None:
    """For the rest of the process."""
    cache = tf.data.Dataset.cache

    def cache_elsewhere(self: Any, filename: Any = "", *args: Any, **kwargs: Any) -> Any:
        if isinstance(filename, (str, os.PathLike)) and str(filename):
            filename = tempfile.mkdtemp(prefix="cache-") + "/cache"
        return cache(self, filename, *args, **kwargs)

    def in_python(name: str, function: Any) -> None:
        original = getattr(tf.io.gfile, name)

        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if "://" in os.fsdecode(path):
                return original(path, *args, **kwargs)
            return function(path)

        patch.object(tf.io.gfile, name, call).start()

    patch.object(tf.data.Dataset, "cache", cache_elsewhere).start()
    import tensorflow.summary as of_imports  # not the same as tf.summary, where TensorBoard is installed

    for module in (tf.summary, of_imports):
        patch.object(module, "create_file_writer", lambda *_, **__: tf.summary.create_noop_writer()).start()
    in_python("makedirs", lambda path: Path(path).mkdir(parents=True, exist_ok=True))
    in_python("mkdir", os.mkdir)
    in_python("exists", os.path.exists)
    in_python("isdir", os.path.isdir)
    in_python("rmtree", shutil.rmtree)
    in_python("remove", os.remove)
    patch.object(tf.train.Checkpoint, "save", lambda self, file_prefix, *_, **__: str(file_prefix)).start()
    patch.object(tf.train.Checkpoint, "write", lambda self, file_prefix, *_, **__: str(file_prefix)).start()
    patch.object(tf.train.CheckpointManager, "save", lambda self, *_, **__: None).start()
    patch.object(tf.saved_model, "save", lambda *_, **__: None).start()
