"""Reports the state of devices and claims: health, claim status, the node's state."""
