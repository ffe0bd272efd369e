"""gpuctl web: a page that shows the GPUs of a cluster, and changes nothing."""
