"""The command ``gpuctl status``: nodes, GPUs, what is allocated or free by tier, and what is amiss."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuctl.cli.cluster_options import cluster_options, nodes
from gpuctl.cli.output import INTERRUPTED_EXIT_CODE, document, emit, exit_amiss, output_option, terminal

if TYPE_CHECKING:
    from rich.console import Console

    from driver.kinds.channel import CliqueState
    from gpuctl.cli.cluster import ClusterView
    from gpuctl.fleet.nodes import NodeState, NodeView
    from gpuctl.fleet.seen import Object, Seen


@click.command()
@click.argument("names", metavar="[NODE]...", nargs=-1, shell_complete=nodes)
@click.option("-w", "--watch", is_flag=True, help="Keep running, and show changes until Ctrl-C.")
@cluster_options
@output_option("wide", "name")
def status(
    names: tuple[str, ...], watch: bool, kubeconfig: Path | None, context: str | None, output: str
) -> None:
    """Show what is allocated or free by tier, and what is wrong, in the cluster or on each NODE.

    Without a NODE the tiers of all nodes are summed up; with -o wide each node has rows of its own.

    Forms of one GPU exclude each other: FREE are the devices that a claim could have now, each by itself, and
    EXCLUDED are those whose GPU is taken in another form. With -o wide, AT-ONCE says how many of the free
    ones can be had together, UNAVAILABLE how many are tainted or in a pool that cannot be used. A shared
    device is FREE while it has room; CLAIMS-LEFT says for how many claims that ask for no amount.

    Below is what shares with a memory limit hold and use, as far as the status of claims reports it: in all,
    by GPU for a NODE, with -o wide also by share. An NVLink clique with IMEX channels has a line, too.

    With --watch a terminal shows every GPU with its holders and its health, and redraws them after changes.
    In a pipe, and with -o json, yaml or name, changed rows are printed below the earlier ones, by node.

    Exit codes: 0 when all is well, 3 when a device is tainted or missing, a pool cannot be used, a memory
    limit is not enforced, a pod waits for devices or cannot start, a pod of the driver is not ready, or a
    controller has warned of what it does not publish; 1 for a NODE that publishes nothing or a cluster that
    cannot be reached, 2 for a wrong command line, 130 when --watch is ended with Ctrl-C.
    """
    from driver.kinds.channel import clique_states
    from gpuctl.cli.cluster import ClusterView, connect_client
    from gpuctl.fleet.cluster import views_of
    from gpuctl.fleet.seen import Seen
    from gpuctl.status.picture import Form, GpuStatus, News, picture

    if watch and names:
        raise click.UsageError("--watch shows all nodes: leave out NODE")
    client = connect_client(kubeconfig, context)
    view = ClusterView(client)
    if watch and output in ("table", "wide") and (console := _screen()) is not None:
        from gpuctl.status.live import watch_live

        watch_live(client, console, view)
        click.get_current_context().exit(INTERRUPTED_EXIT_CODE)
    seen = Seen.read(view)
    views = views_of(seen.slices, seen.claims)
    if names:
        views, seen = _only(names, views, seen)
    cliques = tuple(
        one
        for one in clique_states(seen.slices, seen.claims)
        if not names or not set(names).isdisjoint(one.nodes)
    )
    states, told = [one.state for one in views], seen.told(views)
    lost = _orphans(view, states, seen)
    form = Form(by_node=bool(watch or names or output == "wide"), wide=output == "wide")

    def show(shown: Sequence[NodeState], wrong: Sequence[str], racks: Sequence[CliqueState]) -> None:
        lines = (*lost, *wrong)
        data = document("GpuStatus", GpuStatus(tuple(shown), lines, tuple(seen.unread), tuple(racks)))
        emit(
            output,
            data,
            lambda: picture(views, lines, seen.unread, form, racks),
            lambda: (f"node/{node.name}" for node in shown),
        )

    show(states, told, cliques)
    if watch:
        from gpuctl.fleet.follow import follow

        news = News(states, told, form)
        tell = show if output in ("json", "yaml", "name") else news.tell
        follow(client, states, told, cliques, tell)
    if seen.problems(views) or any(node.is_amiss for node in states):
        exit_amiss()


def _only(names: Collection[str], views: Sequence[NodeView], seen: Seen) -> tuple[tuple[NodeView, ...], Seen]:
    """What concerns these nodes alone; raises ConfigError for one that has no GPUs of this driver."""
    from dataclasses import replace

    from driver.errors import ConfigError

    views = tuple(one for one in views if one.name in names)
    said = [one for one in seen.said if (one.get("involvedObject") or {}).get("name") in names]
    published = {one.name for one in views} | {str(one["involvedObject"]["name"]) for one in said}
    for name in names:
        if name not in published:
            raise ConfigError(
                f"{name} publishes no GPU of this driver", "`gpuctl status -o name` lists the nodes that do"
            )

    def there(pods: Sequence[Object]) -> list[Object]:
        return [pod for pod in pods if pod["spec"].get("nodeName") in names]

    return views, replace(seen, said=said, pending=there(seen.pending), driver_pods=there(seen.driver_pods))


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
