"""The configs and results that Detectron2 publishes."""
