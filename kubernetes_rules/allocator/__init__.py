"""Allocates devices to claims as the scheduler of Kubernetes 1.37 does: structured parameters (KEP-4381)."""
