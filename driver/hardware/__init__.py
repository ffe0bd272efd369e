"""Looks at a node's GPUs through NVML and sysfs, and says what is there."""
