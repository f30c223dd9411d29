"""Detectron2 jobs: a YAML config, a name of its model zoo, or a training script that sets ``cfg``. Detectron2 itself
need not be installed; frameworks are imported only when a job is traced."""
