"""What NVIDIA's own driver, which has the same name, left on the node, or still does there."""
