"""ViTDet (``projects/ViTDet`` of Detectron2) by the names of its published configs.

They are LazyConfig files, Python that only Detectron2 can run: what they say is a table here, and nothing is run.
"""
