"""The GPUs of a cluster, what claims have of them, what is wrong: the model of all of gpuctl."""
