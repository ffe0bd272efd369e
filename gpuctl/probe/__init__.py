"""gpuctl probe: the CUDA probe, a program that uses the GPUs it sees and says what it got."""
