"""A pretended nvidia-smi."""
