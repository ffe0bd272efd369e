"""Resets faulty GPUs, when an admin asks for it."""
