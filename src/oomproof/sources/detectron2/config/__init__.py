"""Detectron2's config: its keys, values and files, read and edited without Detectron2."""
