"""Compares the project's rules for allocation, CEL and validation with Kubernetes itself."""
