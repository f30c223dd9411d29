"""The devices people train on, and how much of each a framework lets its allocator take."""
