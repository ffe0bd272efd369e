"""Devices as ResourceSlices, and back."""
