"""Finds the errors that kube-apiserver finds in objects."""
