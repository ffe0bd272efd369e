"""The node configuration of an admin, and what it makes a node offer."""
