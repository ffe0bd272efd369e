"""The part of verify that changes the node: one claim of each kind, and everything restored after it."""
