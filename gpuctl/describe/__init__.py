"""gpuctl describe: all about one node, GPU or claim."""
