"""How much of a fake GPU is used, and by whom."""
