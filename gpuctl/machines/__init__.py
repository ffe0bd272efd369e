"""gpuctl machines: the machines that can be pretended."""
