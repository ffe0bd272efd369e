"""Walks an admin through changing the static MIG partitions of a node: who is in the way, the steps."""
