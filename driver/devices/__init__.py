"""What a node offers, as values: devices, taints, counters, forms of sharing, names."""
