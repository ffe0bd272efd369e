"""Heals a sick GPU: says what is wrong and what is in the way, ends its pods, resets it."""
