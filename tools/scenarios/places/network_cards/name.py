"""The name of the driver of network cards, and of its class."""

DRIVER = "nic.example.com"
