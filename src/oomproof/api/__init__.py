"""The public functions: check and sweep, fit, explain, slim. May import everything but cli/."""
