"""What is looked at over the API server."""
