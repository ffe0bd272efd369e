"""Runs a list of kubectl commands on the real and on the embedded cluster, and compares the answers."""
