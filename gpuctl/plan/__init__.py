"""gpuctl plan: what a node with some machine publishes, and what would fit on it."""
