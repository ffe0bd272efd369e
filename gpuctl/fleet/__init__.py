"""The GPUs of a cluster, what claims have of them, and what is wrong: one model for all of gpuctl."""
