"""Explains why a pod or a claim waits: which devices fell at which gate, and what would let it run."""
