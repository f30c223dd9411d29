"""Steps from files."""
