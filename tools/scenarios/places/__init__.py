"""Clusters with fake machines and the driver, on which scenarios run, and what else these may need there."""
