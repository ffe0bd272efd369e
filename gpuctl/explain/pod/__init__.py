"""What a pod asks for, in the cluster or in a manifest, and what became of one that has a node."""
