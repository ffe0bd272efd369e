"""gpuctl top: who uses how much of what he holds."""
