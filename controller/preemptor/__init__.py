"""The preemptor: evicts pods of lower priority for pods that wait for devices of claims."""
