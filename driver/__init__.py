"""The shared core: what a GPU is, what a node offers, what a claim asks for, and the edges."""
