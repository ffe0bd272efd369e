"""gpuctl verify: checks everything on a node with a GPU, from NVML to prepared claims."""
