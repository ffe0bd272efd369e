"""Serves the numbers of a process to Prometheus over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.exposition import MetricsHandler

from driver.process.http_endpoint import ANSWER_SECONDS, HttpEndpoint, Server

if TYPE_CHECKING:
    from driver.process.metrics.certificate import CertificateMetrics
    from driver.process.metrics.registry import Metrics
    from driver.process.service import Service


class _Handler(MetricsHandler):
    server: Server
    timeout = ANSWER_SECONDS

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        self.server.places.has_read(self.connection)
        super().do_GET()


def endpoint(address: str, metrics: Metrics | CertificateMetrics) -> HttpEndpoint:
    """The endpoint of these numbers at ``host:port``, bound; raises ConfigError."""
    handler = type("_Handler", (_Handler,), {"registry": metrics.registry})
    return HttpEndpoint(address, lambda place: Server(place, handler), what="metrics", flag="--metrics-addr")


def serve(service: Service, address: str, metrics: Metrics | CertificateMetrics) -> None:
    """Serve these numbers as long as the service lives; an empty address serves none. Raises ConfigError."""
    if address:
        served = endpoint(address, metrics)
        service.spawn("metrics", served.run, served.stop)
