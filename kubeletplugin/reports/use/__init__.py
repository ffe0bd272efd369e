"""What GPUs, the devices of claims and containers use, read when somebody fetches the metrics."""
