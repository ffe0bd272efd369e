"""What is wrong with the node's GPUs and cannot be asked for: heard, kept, told."""
