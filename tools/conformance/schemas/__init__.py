"""Cases of CustomResourceDefinitions and their objects."""
