"""A pipeline.config as text, as fields with types and defaults, and as values that can be set where they stand.

``text_file.py`` reads protobuf's text format without losing a character, ``schema.py`` knows the API's fields,
``reading.py`` puts both together, ``edit.py`` changes text, ``config.py`` is the door for everybody else.
"""
