"""Faults of the node's GPUs that NVML cannot be asked for: received as events, kept, and reported."""
