"""Partitions as they are offered: profiles, layouts, counters, the field `mig` of a rule."""
