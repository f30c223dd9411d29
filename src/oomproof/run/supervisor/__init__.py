"""``oomproof run``: any command, started again with thriftier settings when memory killed it.

Standard library and psutil only: the supervisor must stay small beside what it supervises.
"""
