"""What a pod asks for, and what became of one that has a node or has ended."""
