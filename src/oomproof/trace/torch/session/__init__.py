"""A whole training script under the tracer: what it does on the CPU is real, what it does on the GPU is fake."""
