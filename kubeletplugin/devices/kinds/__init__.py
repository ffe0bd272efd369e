"""What prepare does for one kind of device."""
