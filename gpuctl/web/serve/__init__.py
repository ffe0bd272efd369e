"""Serves the page: HTML, its parts, and the stream that says what changed."""
