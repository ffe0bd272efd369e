"""What NVML tells of how much of a GPU is used, and by whom."""
