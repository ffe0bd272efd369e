"""CUDA of a fake machine, for the probe."""
