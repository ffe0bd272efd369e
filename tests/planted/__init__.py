"""Faults that the tests have to notice, and what plants them."""
