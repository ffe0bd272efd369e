"""Benchmarks: how much time and memory the driver takes, compared with a floor in the same run."""
