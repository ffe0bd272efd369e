"""NVML: its protocols with the values that they use, the real binding, and deadlines for calls."""
