"""gpuctl completion: the values that a shell offers at TAB."""
