"""In which order the executor would run a graph."""
