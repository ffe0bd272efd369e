"""Follows the cluster by watches, and keeps what the page shows up to date."""
