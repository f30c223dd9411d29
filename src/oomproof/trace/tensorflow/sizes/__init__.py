"""Sizes that only the data decide: bounds for them, and what follows from those."""
