"""Make it fit: what could change, what it would save and cost, and the search for the best of it.

Imports memory/ and the words of sources/job.py, no framework: all it knows of a job are its knobs and its Timelines.
"""
