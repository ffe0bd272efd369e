"""The pretend kernel of a fake machine: its PCI functions in sysfs, their drivers, and what writes do."""
