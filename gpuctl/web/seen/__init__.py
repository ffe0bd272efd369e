"""What the page shows, as values: computed from objects of the API, without any I/O."""
