"""Admission that takes effect through objects: policies, and webhooks."""
