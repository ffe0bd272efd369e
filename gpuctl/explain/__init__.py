"""Explains why a pod or a claim waits: what rules out each device, and what would let it run."""
