"""Reads a node's GPUs from NVML and sysfs into an inventory."""
