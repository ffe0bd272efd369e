"""Cases of pods, written and random: new ones, and updates of them."""
