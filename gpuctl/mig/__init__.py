"""gpuctl mig: which MIG layouts fit a GPU."""
