"""The numbers of a process that only serves with a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge

from driver.process.metrics.table import TABLE

if TYPE_CHECKING:
    from collections.abc import Callable


class CertificateMetrics:
    """The one series of a process that only serves with a certificate, in a registry of its own."""

    def __init__(self, remaining_seconds: Callable[[], float]) -> None:
        """``remaining_seconds`` is asked whenever the number is fetched."""
        self.registry = CollectorRegistry()
        (series,) = TABLE.of("webhook")
        Gauge(series.name, series.help, registry=self.registry).set_function(remaining_seconds)
