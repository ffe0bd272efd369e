"""Resets GPUs that are ill, when an admin asks for it."""
