"""For all tests: oneDNN takes the same kernels on every machine, those whose copies memory/scratch/cpu.py knows."""

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
