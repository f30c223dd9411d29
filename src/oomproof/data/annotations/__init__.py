"""A dataset's annotations become columns: the size of every image and of every object in it, nothing decoded.

read.py recognises the format; each format is one file with ``recognises(path)`` and ``read(...)``. Files come from
anywhere, so whatever they hold is read in bounded memory, and entries that are broken are counted and named. Imports
NumPy and PyYAML, ijson for COCO, no framework.
"""
