"""Benchmarks: what the driver takes, beside a floor measured in the same run."""
