"""What Kubernetes decides, decided again: selectors, allocation, validation, and smaller rules."""
