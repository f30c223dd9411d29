"""A plan's changes as code: the tracer traces it, the user's training runs it. Imports frameworks and errors only."""
