"""Cases of device selectors, written and random."""
