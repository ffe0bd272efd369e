"""The command ``gpuctl demo``: prints the story or its facts, and ends everything that it started."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import click

from driver.errors import DriverError
from gpuctl.cli.failures import error_text
from gpuctl.cli.output import document, emit, output_option
from gpuctl.demo.ending import signals_end_it_once
from gpuctl.node.options import machine_option

if TYPE_CHECKING:
    from gpuctl.demo.cluster import DemoCluster


@click.command(context_settings={"show_default": True})
@machine_option(default="hgx-h100")
@click.option(
    "--cluster",
    "kind",
    type=click.Choice(("embedded", "real")),
    default="embedded",
    help="Kubernetes inside this command (embedded), or real binaries on this machine (needs root).",
)
@click.option("--keep", is_flag=True, help="Leave the cluster running until Ctrl-C, for kubectl.")
@output_option()
def demo(machine: str, kind: Literal["embedded", "real"], output: str, *, keep: bool) -> None:
    """Show how pods get GPUs, on a temporary cluster with a simulated machine.

    Needs no GPU. Exit codes: 0 when every step went as expected, 1 when one did not, 2 for a wrong command
    line.
    """
    from fakegpu.machine.spec import load_machine

    try:
        load_machine(machine)
    except DriverError as error:
        raise click.UsageError(error_text(error)) from error
    if output == "table":  # at once: the imports below take a second
        click.echo(f"starting a cluster with one node, the machine {machine}; no GPU is needed")
    from rich.console import Console

    from driver.process.log import configure
    from gpuctl.demo.cluster import DemoCluster
    from gpuctl.demo.story import Narrator, tell

    configure("warning", sys.stderr)
    cluster = DemoCluster(kind, machine)
    console = Console(quiet=output != "table")
    with signals_end_it_once() as ending, _closed(cluster, ending), _logs_of_failure(cluster):
        facts = tell(cluster, Narrator(console))
        if output != "table":
            emit(output, document("DemoStory", facts), lambda: "")
        if keep:
            _wait_for_the_end(cluster)


def _wait_for_the_end(cluster: DemoCluster) -> None:
    """Say how to reach the cluster, and wait for Ctrl-C; on stderr, so that stdout stays JSON."""
    cluster.offer_in_limits()
    export = f"export KUBECONFIG={cluster.kubeconfig}"
    try:  # around the message too: who reads it may press Ctrl-C before the wait has begun
        click.echo(
            f"the cluster keeps running until Ctrl-C; use kubectl in another terminal after:\n{export}",
            err=True,
        )
        threading.Event().wait()
    except KeyboardInterrupt:
        click.echo("stopping the cluster", err=True)


@contextmanager
def _logs_of_failure(cluster: DemoCluster) -> Iterator[None]:
    """Print the ends of the logs on stderr when the story fails: they are removed with the cluster."""
    try:
        yield
    except Exception:
        for name, tail in cluster.logs().items():
            click.echo(f"--- the end of the log of {name}\n{tail}", err=True)
        raise


@contextmanager
def _closed(cluster: DemoCluster, ending: Callable[[], None]) -> Iterator[None]:
    """Close the cluster, however the story ends."""
    try:
        yield
    finally:
        # A second Ctrl-C must not keep the processes of the cluster alive.
        ending()
        cluster.close()
