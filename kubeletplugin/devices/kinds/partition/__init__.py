"""MIG partitions of claims: found, made, destroyed."""
