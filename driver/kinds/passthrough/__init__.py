"""GPUs that are passed through to virtual machines."""
