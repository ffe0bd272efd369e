"""What Kubernetes decides, decided again: device selectors, allocation, validation, quantities."""
