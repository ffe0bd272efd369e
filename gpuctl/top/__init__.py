"""gpuctl top: how much each claim uses of the GPUs that it holds."""
