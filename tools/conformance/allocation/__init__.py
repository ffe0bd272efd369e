"""Cases of allocation, written and random."""
