"""The checks of verify that change nothing: of NVML, of the node, and of CUDA."""
