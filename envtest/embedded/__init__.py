"""A cluster in one Python process, for unit tests and the demo: a stateful API server on loopback."""
