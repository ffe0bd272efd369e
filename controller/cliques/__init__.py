"""Publishes the IMEX channels of NVLink cliques and labels their nodes: one process for the cluster."""
