"""A second DRA driver beside this one, which hands out network cards that do nothing."""
