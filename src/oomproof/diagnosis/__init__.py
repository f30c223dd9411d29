"""Why didn't it fit? A log becomes facts (one file per message family), facts become ranked causes, and a Diagnosis.

May import memory/ and errors; no framework, and NumPy only for snapshots, so that ``oomproof explain`` starts at once.
"""
