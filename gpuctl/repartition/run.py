"""Runs a repartition: looks at the node, shows the plan or walks it, and ends with the exit code."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import click

from driver.devices.names import DRIVER_NAME, checked_node_name
from driver.errors import ConfigError
from driver.kube.paths import NODES, object_path
from driver.nvml.pci_address import PciAddress
from gpuctl.cli.cluster_view import ClusterView
from gpuctl.cli.documents import document
from gpuctl.cli.output import emit, say
from gpuctl.repartition.in_the_way import claims_in_the_way
from gpuctl.repartition.node_changes import NodeChanges
from gpuctl.repartition.node_gpus import NodeGpu, newest, node_gpus
from gpuctl.repartition.picture import left_to_driver, plan_text
from gpuctl.repartition.plan import Plan
from gpuctl.repartition.walk import Walk
from gpuctl.repartition.wanted import MigConfig, commands_text, wanted_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from driver.kube.client import KubeClient
    from gpuctl.mig.fit import Layout

NOT_DONE_EXIT_CODE = 3


def plan_node_change(
    client: KubeClient, node: str, layout: Layout | MigConfig, addresses: Sequence[str], machine: str | None
) -> Plan:
    """What a repartition of the node would do.

    Raises ConfigError for a node, a GPU or a layout that cannot be used, and ApiError.
    """
    return _plan(ClusterView(client), checked_node_name(node), layout, addresses, machine)


def show(plan: Plan, output: str) -> None:
    """Print the plan, of which nothing is done."""
    emit(output, document("Repartition", plan.as_data()), lambda: plan_text(plan))


def walk(client: KubeClient, plan: Plan, timeout_seconds: float, output: str) -> None:
    """Do what the plan says, and end with exit code 3 where not all is as wanted.

    Raises ConfigError where pods of DaemonSets are in the way, and ApiError for one that stays.
    """
    if not plan.wanted:
        show(plan, output)
        if plan.by_driver:
            click.get_current_context().exit(NOT_DONE_EXIT_CODE)
        return
    if plan.daemons:
        pods = ", ".join(map(str, plan.daemons))
        raise ConfigError(
            f"{pods} belong to DaemonSets, which start them again in spite of a cordon", "stop these first"
        )
    changes = NodeChanges(client, plan.node)
    steps = Walk(ClusterView(client), changes, plan.node, plan.wanted, _teller(output), _pause)
    _walk(plan, steps, timeout_seconds, output)


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _teller(output: str) -> Any:
    """Steps go to stdout where people read it, to stderr where a script does."""
    return lambda text: say(text, err=output != "table")


def _walk(plan: Plan, walk: Walk, timeout_seconds: float, output: str) -> None:
    try:
        outcome = walk.run(plan.commands, plan.cordoned, timeout_seconds)
    except BaseException:  # an interrupt as well: whoever comes next has to know
        say(f"{plan.node} may still be cordoned: `kubectl uncordon {plan.node}` opens it", err=True)
        raise
    if output != "table":
        result = {"done": not outcome.missing, "missing": list(outcome.missing), "cordoned": outcome.cordoned}
        emit(output, document("Repartition", {**plan.as_data(), **result}), lambda: "")
    if outcome.missing:
        say("not done in time:", err=True)
        for one in outcome.missing:
            say(f"  {one}", err=True)
    if outcome.cordoned:
        say(f"{plan.node} is left cordoned: `kubectl uncordon {plan.node}` opens it", err=True)
    for line in left_to_driver(plan):
        say(line, err=True)
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
