"""What apiextensions-apiserver decides about CustomResourceDefinitions and their objects: plain dicts."""
