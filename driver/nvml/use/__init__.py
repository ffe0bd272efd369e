"""NVML's calls about how much of a GPU is used, and by which processes."""
