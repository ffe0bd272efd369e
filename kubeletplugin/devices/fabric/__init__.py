"""Partitions of the NVLink fabric, activated for the claims that have all of their GPUs."""
