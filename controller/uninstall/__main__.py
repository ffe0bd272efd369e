"""The command of the uninstallation, which a Job runs before the driver's objects are deleted."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from controller.uninstall.cluster import Cluster, named
from controller.uninstall.steps import Installed, Patience, Refused, Uninstallation
from driver.kube.client import KubeClient
from driver.process import command_line
from driver.process.log import Level, configure

NAME = "gpu-dra-uninstall"
_NAMES, _PATIENCE = Installed(), Patience()


@command_line.command(NAME)
@click.option("--namespace", default="gpu-dra", show_envvar=True, help="The driver's namespace.")
@command_line.kubeconfig
@click.option(
    "--controller",
    default=_NAMES.controller,
    show_envvar=True,
    help="The name of the controllers' DaemonSet.",
)
@click.option(
    "--plugin",
    default=_NAMES.plugin,
    show_envvar=True,
    help="The name of the kubelet plugins' DaemonSet.",
)
@click.option(
    "--nodes-seconds",
    type=click.FloatRange(min=1),
    default=_PATIENCE.nodes_seconds,
    show_envvar=True,
    help="How long the clean-up of all nodes may take; it does not wait for nodes that are down.",
)
@click.option(
    "--settle-seconds",
    type=click.FloatRange(min=0),
    default=_PATIENCE.settle_seconds,
    show_envvar=True,
    help="How long to wait for late allocations after the last ResourceSlice is deleted.",
)
@command_line.log_level
def main(
    namespace: str,
    kubeconfig: Path | None,
    controller: str,
    plugin: str,
    nodes_seconds: float,
    settle_seconds: float,
    log_level: Level,
) -> None:
    """Remove the driver from all nodes, unless a claim has a device. Then its objects can be deleted."""
    configure(log_level)
    patience = Patience(settle_seconds=settle_seconds, nodes_seconds=nodes_seconds)
    client = KubeClient.connect(kubeconfig, user_agent=NAME)
    try:
        _undo_on_signal()
        run = Uninstallation(Cluster(client, namespace), Installed(controller, plugin), patience)
        down = run.run()
    finally:
        client.close()
    click.echo("No ResourceSlice is left, and every node that is up is clean.")
    if down:
        click.echo(
            f"Nodes that are down were not cleaned: {named(down)}. When one comes back, "
            "restart it, and remove gpu.nvidia.com from the kubelet's folder for plugins."
        )


def _undo_on_signal() -> None:
    """Let SIGTERM end the run like a refusal, so that a deleted Job does not leave the driver paused."""

    def end(number: int, _frame: object) -> None:
        # A second signal must not interrupt the undoing.
        signal.signal(number, signal.SIG_IGN)
        # Python runs handlers in the main thread, between two steps of what it does there, which is the run.
        raise Refused("the uninstallation was stopped", "uninstall again")

    signal.signal(signal.SIGTERM, end)


if __name__ == "__main__":
    main()
