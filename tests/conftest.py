"""Test modules may import their neighbours (real_cpu and the like)."""
