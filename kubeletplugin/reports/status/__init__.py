"""Writes the status of claims, and posts events about its changes."""
