"""Python code that edits a pipeline.config through the API, followed by its syntax tree; nothing is run."""
