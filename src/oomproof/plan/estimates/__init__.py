"""What would be if: from steps that were traced to ways of training, each with its peak and its time, by arithmetic.

Nothing here traces, and nothing changes: what is kept is kept to be quick. Imports memory/, sources/job.py and SciPy.
"""
