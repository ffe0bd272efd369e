"""The command ``gpuctl web``: serves the page of a cluster until Ctrl-C."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import click

from driver.process.log import LEVELS, Level
from gpuctl.cli.cluster_options import cluster_options
from gpuctl.cli.output import say

DEFAULT_ADDRESS = "127.0.0.1:8470"
PROGRAM = "gpu-dra-page"
"""The same command as a program of its own, which the chart's pod runs."""


@click.command()
@click.option(
    "--addr",
    default=DEFAULT_ADDRESS,
    show_default=True,
    metavar="HOST:PORT",
    help="Address to serve on; port 0 means any free port.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="A host name, besides localhost, that browsers use for the page; can be repeated.",
)
@click.option("--health-addr", default="", metavar="HOST:PORT", help="Address for the kubelet's probes.")
@click.option(
    "--log-level", type=click.Choice(LEVELS), default="warning", show_default=True, help="The log level."
)
@cluster_options
def web(
    addr: str,
    names: tuple[str, ...],
    health_addr: str,
    log_level: Level,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Serve a page that shows the cluster's GPUs, until Ctrl-C.

    It shows nodes, GPUs with their forms and claims, classes and queues, why pods wait, and what is wrong.
    The cluster is read when somebody looks, and again at most every two seconds.

    It changes nothing and has no login: whoever reaches it sees the names of nodes, claims and pods that you
    may read. It is therefore served to this machine only.

    Use another address only in a pod behind an authenticating proxy (docs/monitoring.md). It needs --name,
    because requests for other host names are refused.
    """
    from driver.errors import ConfigError
    from driver.kube.kubeconfig import chosen_context
    from driver.process.log import configure
    from gpuctl.cli.cluster import connect_client, find_kubeconfig
    from gpuctl.web.server import WebServer, address_of, answering, bound, is_loopback

    configure(log_level)
    if not is_loopback(addr) and not names:
        raise ConfigError(
            f"{addr} can be reached from other machines, and the page has no login",
            "leave out --addr, or put an authenticating proxy in front and name its host with --name",
        )
    found = find_kubeconfig(kubeconfig, context)
    title = "this cluster"
    client = connect_client(kubeconfig, context)
    if found:
        title, _ = chosen_context(found)
        # A person learns at once that the cluster cannot be reached. A pod, which has no kubeconfig, waits
        # for it.
        client.get("/version")
    server = WebServer(client, title, names)
    listening = bound(addr)
    say(f"the page is at {address_of(listening)} until Ctrl-C")
    with answering(health_addr) if health_addr else nullcontext():
        server.run(listening)


def main() -> None:
    """Run the command as a program of its own; exit code 0, 1 for a failure, 2 for a wrong command line."""
    from driver.errors import DriverError

    try:
        click.version_option(package_name="gpu-dra", message=f"{PROGRAM} %(version)s")(web)(prog_name=PROGRAM)
    except (DriverError, OSError) as error:
        from gpuctl.cli.failures import error_text

        say(f"{PROGRAM}: {error_text(error)}", err=True)
        sys.exit(1)
