"""The commands of containers: their environment, and what they print."""
