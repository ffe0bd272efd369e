"""HTTP requests about the kinds and verbs that the embedded API server has, as tables."""
