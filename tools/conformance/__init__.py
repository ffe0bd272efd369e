"""Compares what the project says about allocation, CEL and validation with what Kubernetes itself says."""
