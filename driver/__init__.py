"""The shared core: GPUs, devices, claims, and access to NVML, the kernel, the disk and the API server."""
