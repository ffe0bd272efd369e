"""What the processes of the driver count and tell Prometheus: a table of all series, and their numbers."""

from driver.process.metrics.registry import CertificateMetrics, Metrics, endpoint, serve

__all__ = ["CertificateMetrics", "Metrics", "endpoint", "serve"]
