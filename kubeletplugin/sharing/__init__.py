"""Sharing of GPUs and partitions: time-slices, MPS, who has which share."""
