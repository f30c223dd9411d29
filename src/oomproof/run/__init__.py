"""What a fitted training needs while it runs: the plan's changes as code. Imports frameworks and errors.py only."""
