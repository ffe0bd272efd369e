"""Devices on the node: kinds, the driver's files, vfio, fabric partitions."""
