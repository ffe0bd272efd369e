"""The types of the served kinds, from Kubernetes' own OpenAPI: fields, list keys and patch rules."""
