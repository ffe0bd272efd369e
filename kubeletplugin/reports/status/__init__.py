"""How the status of claims is written, and who hears of what changes in it."""
