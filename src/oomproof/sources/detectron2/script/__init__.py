"""Training scripts that make a Detectron2 config, followed by their syntax tree; nothing is run."""
