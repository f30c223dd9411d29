"""Where a GPU differs from the CPU that a trace runs on."""
