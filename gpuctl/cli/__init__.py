"""What all commands share: how they print, and how they reach a cluster."""
