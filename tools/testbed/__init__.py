"""The driver on real clusters: its image, chart, manifests and hook, and the fixtures that tests use."""
