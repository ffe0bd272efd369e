"""Cases of rules in CEL: those of CustomResourceDefinitions, and those of admission policies."""
