"""Takes the driver away from a cluster, before its objects are deleted."""
