"""gpuctl, the command of the operator."""
