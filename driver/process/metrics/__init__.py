"""The metrics of the driver's processes: a table of all series, and their numbers."""

from driver.process.metrics.registry import CertificateMetrics, Metrics, endpoint, serve

__all__ = ["CertificateMetrics", "Metrics", "endpoint", "serve"]
