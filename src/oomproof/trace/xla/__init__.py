"""XLA's own memory plan of a training step: the real XLA:GPU compiler is run for a described GPU, and none is needed.

``child.py`` runs in a process of its own and is the only file here that imports JAX. ``assignment.py`` reads what the
compiler has planned into a Timeline."""
