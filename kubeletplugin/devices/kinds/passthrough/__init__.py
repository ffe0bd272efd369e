"""GPUs that are passed through to virtual machines, on the node."""
