"""What the NVIDIA driver put on the node: files, programs, device nodes, capabilities."""
