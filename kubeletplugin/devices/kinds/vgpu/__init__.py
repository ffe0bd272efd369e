"""vGPUs of a host on the node: made for a claim, taken back after it."""
