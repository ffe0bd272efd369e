"""The pictures of the documentation, drawn from what the code publishes, allocates and ships."""
