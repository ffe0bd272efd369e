"""gpuctl demo: a node of fake GPUs, and pods that get them."""
