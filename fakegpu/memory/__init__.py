"""GPU memory of a fake machine: limits of control groups, and CUDA clients that allocate within them."""
