"""The Kubernetes API edge: transport, errors, reflector, events."""
