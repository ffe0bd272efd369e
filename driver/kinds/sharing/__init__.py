"""Shared devices as they are offered: measures, limits, the field `shared` of a rule."""
