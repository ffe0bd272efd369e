"""NVML's calls and events about a GPU's health."""
