"""Tells others how devices and claims are: health, claim status, the node's state."""
