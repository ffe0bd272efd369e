"""The forms in which a GPU is offered: whole, in partitions, shared."""
