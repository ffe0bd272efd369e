"""A pretended machine: what it has by its file, and how that is now."""
