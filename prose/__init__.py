"""How the documentation reads: rules for its prose, and what looks whether they are kept."""
