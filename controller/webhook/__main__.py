"""The command of the admission webhook, a process of its own.

It needs no rights and makes no requests: the API server calls it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from driver.process import command_line
from driver.process.log import Level, configure

if TYPE_CHECKING:
    from driver.process.service import Service

NAME = "gpu-dra-webhook"


def start(service: Service, cert_file: Path, key_file: Path, addr: str, classes: str, **addrs: str) -> None:
    """Start serving below ``service``; raises ConfigError for a flag that cannot be used."""
    # Imported here, so that --help and a usage error need none of it.
    from controller.webhook.certificate import CHECK_SECONDS, ExpiryWatch, ServingCertificate
    from controller.webhook.server import endpoint
    from driver.process.probes import Probes
    from driver.process.probes import serve as serve_probes

    certificate = ServingCertificate(cert_file, key_file)
    expiry = ExpiryWatch(certificate)
    server = endpoint(addr, certificate, classes=frozenset(classes.split(",")))
    if addrs["metrics_addr"]:
        from driver.process.metrics import CertificateMetrics, serve

        serve(service, addrs["metrics_addr"], CertificateMetrics(expiry.remaining_seconds))
    # The certificate was read, so nothing is left to wait for, and nothing that a restart could repair.
    serve_probes(service, addrs["health_addr"], Probes(lambda: "", lambda: "", lambda: ""))
    service.spawn("webhook", server.run, server.stop)
    service.catch_signals()
    service.repeat("certificate", CHECK_SECONDS, expiry.check)


@command_line.command(NAME)
@click.option(
    "--cert-file",
    type=click.Path(path_type=Path),
    required=True,
    show_envvar=True,
    help="The serving certificate (PEM, with its chain), read again when it changes.",
)
@click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    required=True,
    show_envvar=True,
    help="The certificate's key (PEM, without a passphrase).",
)
@click.option("--addr", default=":8443", show_envvar=True, help="Address (host:port) to serve on.")
@command_line.metrics_addr
@command_line.health_addr
@click.option(
    "--classes",
    default="",
    show_envvar=True,
    help="DeviceClasses installed with this driver, by commas; what can never work with them is denied.",
)
@command_line.log_level
def main(log_level: Level, cert_file: Path, key_file: Path, **flags: str) -> None:
    """Review claims, claim templates and DeviceClasses that configure GPUs, before they are stored.

    Every flag can be given as the environment variable that is shown with it.
    """
    from driver.process.service import Service

    configure(log_level)
    service = Service()
    try:
        start(service, cert_file, key_file, **flags)
        service.run()
    finally:
        service.stop()


if __name__ == "__main__":
    main()
