"""Finds where the NVIDIA driver is installed on this node."""
