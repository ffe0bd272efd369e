"""The embedded scheduler and controllers."""
