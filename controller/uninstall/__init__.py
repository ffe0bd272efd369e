"""Removes the driver from the nodes of a cluster, before its objects are deleted."""
