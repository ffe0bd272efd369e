"""NVML as the pretended machine answers it."""
