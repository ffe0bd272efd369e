"""Measures what many nodes cost the API server, and how soon their slices are right after an event."""
