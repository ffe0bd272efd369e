"""What a claim says: what it was allocated, and its configuration."""
