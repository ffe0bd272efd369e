"""The programs on PATH of a scenario that act on a node's fake machine as hardware, or who uses it, would."""
