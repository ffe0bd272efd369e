"""The fabric manager of a fake machine: what it keeps, and how it answers."""
