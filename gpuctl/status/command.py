"""The command ``gpuctl status``: nodes, GPUs, what is allocated or free by tier, and what is amiss."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster_options import cluster_options
from gpuctl.cli.output import document, emit, output_option, terminal

if TYPE_CHECKING:
    from rich.console import Console

    from gpuctl.cli.cluster import ClusterView
    from gpuctl.fleet.nodes import NodeState
    from gpuctl.fleet.seen import Seen

AMISS_EXIT_CODE = 3
INTERRUPTED_EXIT_CODE = 130
"""What a shell reports for a command that Ctrl-C ended: 128 and the number of SIGINT."""


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Keep running, and show changes until Ctrl-C.")
@cluster_options
@output_option("wide", "name")
def status(watch: bool, kubeconfig: Path | None, context: str | None, output: str) -> None:
    """Show the nodes with GPUs: what is allocated or free by tier, and what is wrong.

    Forms of one GPU exclude each other: FREE are the devices that a claim could have now, each by itself, and
    AT-ONCE how many of them together; EXCLUDED are those whose GPU is taken in another form. A shared device
    is FREE while it has room; CLAIMS-LEFT (-o wide) says for how many claims that ask for no amount.

    Below are the memory limits of shares and their use, as far as the status of claims reports them: by GPU,
    with -o wide also by share.

    With --watch a terminal shows every GPU with its holders and its health, and redraws them after changes.
    In a pipe, and with -o json, yaml or name, changed rows are printed below the earlier ones.

    Exit codes: 0 when all is well, 3 when a device is tainted or missing, a pool cannot be used, a memory
    limit is not enforced, a pod waits for devices or cannot start, a pod of the driver is not ready, or a
    controller has warned of what it does not publish; 1 for a cluster that cannot be reached, 2 for a wrong
    command line, 130 when --watch is ended with Ctrl-C.
    """
    from gpuctl.cli.cluster import ClusterView, connect_client
    from gpuctl.fleet.cluster import views_of
    from gpuctl.fleet.seen import Seen

    client = connect_client(kubeconfig, context)
    view = ClusterView(client)
    if watch and output in ("table", "wide") and (console := _screen()) is not None:
        from gpuctl.status.live import watch_live

        watch_live(client, console, view)
        click.get_current_context().exit(INTERRUPTED_EXIT_CODE)
    seen = Seen.read(view)
    views = views_of(seen.slices, seen.claims)
    nodes, problems = [one.state for one in views], seen.problems(views)
    lost = _orphans(view, nodes, seen)

    show = partial(_show, lost, seen.unread, output)
    show(nodes, problems)
    if watch:
        from gpuctl.fleet.follow import follow
        from gpuctl.status.picture import News

        news = News(nodes, problems, wide=output == "wide")
        tell = show if output in ("json", "yaml", "name") else news.tell
        try:
            follow(client, nodes, problems, tell)
        except KeyboardInterrupt:
            click.get_current_context().exit(INTERRUPTED_EXIT_CODE)
    if problems or any(node.is_amiss for node in nodes):
        click.get_current_context().exit(AMISS_EXIT_CODE)


def _show(
    lost: Sequence[str],
    unread: Sequence[str],
    output: str,
    nodes: Sequence[NodeState],
    problems: Sequence[str],
) -> None:
    from gpuctl.status.picture import picture

    told = [*lost, *problems]
    data = document("GpuStatus", {"nodes": nodes, "problems": told, "unread": unread})
    names = (f"node/{node.name}" for node in nodes)
    emit(output, data, lambda: picture(nodes, told, unread, wide=output == "wide"), lambda: names)


def _orphans(view: ClusterView, nodes: Sequence[NodeState], seen: Seen) -> list[str]:
    """The pods with devices from deleted claims."""
    from driver.devices.taints import DELETED_CLAIM
    from gpuctl.fleet.pods import orphans

    # The driver taints such devices. Without a taint pods are not listed: a cluster has many, and not every
    # user may read them.
    deleted = any(
        taint.value == DELETED_CLAIM for node in nodes for one in node.tainted for taint in one.taints
    )
    return list(orphans(view.listed("/api/v1/pods"), seen.claims)) if deleted else []


def _screen() -> Console | None:
    """The terminal to draw on; None if there is none, or one that cannot move its cursor."""
    if not sys.stdout.isatty():
        return None
    console = terminal()
    return None if console.is_dumb_terminal else console
