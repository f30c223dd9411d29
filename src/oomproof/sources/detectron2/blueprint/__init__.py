"""Models of Detectron2's structure, built from PyTorch and torchvision alone.

A blueprint has Detectron2's module names and keeps the same tensors alive, so that a trace of it shows the memory of
the real model. It is traced, never trained: what only decides numbers (initial weights, which anchor matches which
box) is laid out instead of computed.
"""
