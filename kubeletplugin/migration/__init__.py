"""Notices NVIDIA's own driver, which has the same name, on the node, and takes its claims over."""
