"""The health of fake GPUs: answers and events of NVML, and faults that a test or a demo injects."""
