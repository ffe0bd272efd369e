"""The tables of the documentation that follow from the code."""
