"""Who asks the embedded API server, and what they may do."""
