"""What an epoch can bring: the worst batch of a dataset, the typical one, the chance of one that does not fit.

Traces say how memory follows from sizes and objects (memory_model.py); a search finds the worst batch under that model
(search.py), and what it finds is traced. Imports data.annotations, memory/, sources.job and trace.request.
"""
