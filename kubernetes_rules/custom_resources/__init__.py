"""What apiextensions-apiserver decides about CustomResourceDefinitions and their objects, over plain dicts."""
