"""Finds the pods whose end would let other pods have devices: preemption for ResourceClaims."""
