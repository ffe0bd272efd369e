"""What is looked at on a node, by its files, sockets and GPUs."""
