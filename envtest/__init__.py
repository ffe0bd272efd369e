"""Clusters to run the driver against: ``embedded`` in one process, ``real`` with Kubernetes' own binaries."""
