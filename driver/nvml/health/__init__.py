"""What NVML tells of a GPU's health: when it is asked, and by events."""
