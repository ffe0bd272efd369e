"""The fabric manager of a node with NVSwitches: its protocol with the values that it speaks, the real one."""
