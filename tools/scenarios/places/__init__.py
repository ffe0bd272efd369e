"""Clusters with fake machines and the driver, on which scenarios run, and what else scenarios may need."""
