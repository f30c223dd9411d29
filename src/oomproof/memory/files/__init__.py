"""Timelines and memory snapshots in files, read without trusting a byte of them."""
