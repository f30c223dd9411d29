"""Memory of a training while it runs: what is read at every step, and whether it is a leak, a spike or neither."""
