"""Clusters to run the driver against; ``envtest.real`` starts the binaries of Kubernetes itself."""
