"""The command ``gpuctl repartition``: changes the static partitions of a node, step by step."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from driver.devices.names import DRIVER_NAME, checked_node_name
from driver.errors import ConfigError
from driver.kube.paths import NODES, object_path
from driver.nvml.pci_address import PciAddress
from gpuctl.cli.cluster_view import ClusterView, connect_client, kubeconfig_option
from gpuctl.cli.output import emit, output_option
from gpuctl.mig.fit import read_layout
from gpuctl.repartition.in_the_way import claims_in_the_way
from gpuctl.repartition.node_changes import NodeChanges
from gpuctl.repartition.node_gpus import NodeGpu, newest, node_gpus
from gpuctl.repartition.picture import CHANGE_CONFIG, plan_text
from gpuctl.repartition.plan import Plan
from gpuctl.repartition.walk import Walk
from gpuctl.repartition.wanted import MigConfig, commands_text, wanted_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuctl.mig.fit import Layout

NOT_DONE_EXIT_CODE = 3


@click.command()
@click.argument("node")
@click.option("--layout", help="all-balanced, all-1g.10gb and so on, or profiles: 1g,1g,2g,3g.")
@click.option("--mig-config", metavar="FILE:NAME", help="A configuration in a file of mig-parted.")
@click.option("--gpu", "addresses", multiple=True, metavar="ADDRESS", help="Only the GPU at a PCI address.")
@click.option("--machine", help="A machine (file) with such GPUs, for a model that does not ship.")
@click.option("--yes", is_flag=True, help="Do it: cordon, evict, wait for your commands, uncordon.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=1800.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait altogether, with --yes.",
)
@kubeconfig_option
@output_option
def repartition(
    node: str,
    layout: str | None,
    mig_config: str | None,
    addresses: tuple[str, ...],
    machine: str | None,
    yes: bool,
    timeout: float,
    kubeconfig: Path | None,
    output: str,
) -> None:
    """Change the static MIG partitions of the GPUs of NODE, and leave nobody's pod without its GPU.

    Shows which pods stand in the way, the steps, and the commands to run on the node, since nobody can cut a
    GPU from afar. Without --yes nothing happens. With it the node is cordoned, the pods that use the GPUs are
    evicted (PodDisruptionBudgets are kept), the commands are printed, and once the node publishes the wanted
    partitions it is uncordoned. GPUs whose partitions the driver makes by itself need nothing of this: change
    their node configuration.

    Exit codes: 0 when the plan is shown, or with --yes when all is as wanted; 3 with --yes when it is not
    (the node stays cordoned); 1 for a node, layout or GPU that cannot be used, or a cluster that cannot be
    reached; 2 for a wrong command line.
    """
    if (layout is None) == (mig_config is None):
        raise click.UsageError("name a layout with --layout, or one of mig-parted's with --mig-config")
    chosen = read_layout(layout) if layout is not None else MigConfig.read(str(mig_config))
    client = connect_client(kubeconfig)
    view = ClusterView(client)
    plan = _plan(view, checked_node_name(node), chosen, addresses, machine)
    if not yes or not plan.wanted:
        emit(output, plan.as_data(), lambda: plan_text(plan))
        if yes and plan.by_driver:
            click.get_current_context().exit(NOT_DONE_EXIT_CODE)
        return
    if plan.daemons:
        pods = ", ".join(map(str, plan.daemons))
        raise ConfigError(
            f"{pods} belong to DaemonSets, which start them again in spite of a cordon", "stop these first"
        )
    _walk(
        plan,
        Walk(view, NodeChanges(client, node), node, plan.wanted, _teller(output), _pause),
        timeout,
        output,
    )


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _teller(output: str) -> Any:
    """Steps go to stdout where people read it, to stderr where a script does."""
    return lambda text: click.echo(text, err=output != "table")


def _walk(plan: Plan, walk: Walk, timeout_seconds: float, output: str) -> None:
    try:
        outcome = walk.run(plan.commands, plan.cordoned, timeout_seconds)
    except BaseException:  # an interrupt as well: whoever comes next has to know
        click.echo(f"{plan.node} may still be cordoned: `kubectl uncordon {plan.node}` opens it", err=True)
        raise
    if output != "table":
        result = {"done": not outcome.missing, "missing": list(outcome.missing), "cordoned": outcome.cordoned}
        emit(output, {**plan.as_data(), **result}, lambda: "")
    if outcome.missing:
        click.echo("not done in time:", err=True)
        for one in outcome.missing:
            click.echo(f"  {one}", err=True)
    if outcome.cordoned:
        click.echo(f"{plan.node} is left cordoned: `kubectl uncordon {plan.node}` opens it", err=True)
    for gpu in plan.by_driver:
        click.echo(f"{gpu.pci} is left as it is, in {gpu.mode} mode: {CHANGE_CONFIG}", err=True)
    if outcome.missing or plan.by_driver:
        click.get_current_context().exit(NOT_DONE_EXIT_CODE)


def _plan(
    view: ClusterView, node: str, layout: Layout | MigConfig, addresses: Sequence[str], machine: str | None
) -> Plan:
    stored = view.found(object_path(NODES, node))
    if stored is None:
        raise ConfigError(f"there is no node {node}", "`kubectl get nodes` lists them")
    slices = newest(view.slices(), node)
    if slices is None:
        raise ConfigError(
            f"{node} publishes no complete pool of the driver {DRIVER_NAME}", "see that the driver runs there"
        )
    gpus = _chosen(node_gpus(slices), addresses)
    by_driver = tuple(gpu for gpu in gpus if gpu.mode in ("dynamic", "layout"))
    ours = [gpu for gpu in gpus if gpu not in by_driver]
    wanted = wanted_of(ours, layout, machine)
    left = tuple(one for one in wanted if not one.reached(None if one.gpu.mode == "unpublished" else one.gpu))
    return Plan(
        node=node,
        cordoned=bool((stored.get("spec") or {}).get("unschedulable")),
        by_driver=by_driver,
        wanted=left,
        claims=claims_in_the_way(view, node, {one.gpu.pci for one in left}),
        commands=commands_text(left, layout),
    )


def _chosen(published: dict[PciAddress, NodeGpu], addresses: Sequence[str]) -> list[NodeGpu]:
    """The GPUs that are named, also those that are not published; else all that are and know MIG."""
    if not addresses:
        return [gpu for gpu in published.values() if gpu.mode != "whole" or gpu.mig_capable]
    models = {gpu.product for gpu in published.values()}
    product = models.pop() if len(models) == 1 else None
    found = []
    for address in dict.fromkeys(addresses):
        try:
            pci = PciAddress.parse(address)
        except ValueError as error:
            raise ConfigError(str(error), "check --gpu") from error
        found.append(published.get(pci) or NodeGpu(pci, "unpublished", product))
    return found
