"""The use of GPUs, of the devices of claims, and by containers, read when the metrics are fetched."""
