"""gpuctl simulate: how a workload would fit on a cluster that nobody has yet."""
