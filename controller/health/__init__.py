"""Faults of the node's GPUs that NVML reports only once, as events: received, kept, and published."""
