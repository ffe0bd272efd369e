"""Files in which a container reads what its devices are (device metadata, KEP-5304)."""
