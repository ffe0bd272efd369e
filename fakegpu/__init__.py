"""A pretend node of NVIDIA GPUs: NVML, nvidia-smi, MPS, the driver's files and sysfs, by machine files."""
