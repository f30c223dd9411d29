"""The public functions: check, fit, explain and slim, one file each. May import everything but cli/."""
