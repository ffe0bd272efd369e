"""Writes the node's ResourceSlices, and replaces old devices by new ones without harm to claims."""
