"""Reads the node: its GPUs, its configuration, its labels, and which devices claims have."""
