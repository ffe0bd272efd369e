"""The types of the served kinds, out of Kubernetes' own OpenAPI: fields, list keys and patch rules."""
