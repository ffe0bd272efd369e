"""Looks at the node: its GPUs, its configuration, what claims were given."""
