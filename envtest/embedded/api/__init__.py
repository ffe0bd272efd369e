"""The embedded API server."""
