"""Cases of validation, written and random."""
