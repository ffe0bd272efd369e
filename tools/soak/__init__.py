"""A day of claims in minutes: pods and calls of every kind, faults, restarts, and what is left at the end."""
