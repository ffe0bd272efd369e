"""How well a GPU is, as far as NVML can be asked for it."""
