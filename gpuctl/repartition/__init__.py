"""Walks an admin through changing the static MIG partitions of a node: what is in the way, and the steps."""
