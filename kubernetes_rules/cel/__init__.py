"""CEL, as far as Kubernetes and the node configuration use it."""
