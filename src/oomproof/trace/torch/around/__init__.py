"""What is put in place around a trace, and taken away after it."""
