"""Writes the node's ResourceSlices and hands over from old devices to new ones."""
