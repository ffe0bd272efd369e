"""Kinds that CustomResourceDefinitions add to the API server."""
