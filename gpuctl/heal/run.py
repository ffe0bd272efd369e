"""Runs a heal: shows the plan or walks it, or asks the plugin of this node; ends with the exit code."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import click

from driver.devices.names import checked_node_name
from driver.errors import ConfigError
from gpuctl.cli.cluster_view import ClusterView
from gpuctl.cli.documents import document
from gpuctl.cli.output import emit, say
from gpuctl.heal.looking import Looking
from gpuctl.heal.picture import plan_text
from gpuctl.heal.walk import Walk
from gpuctl.repartition.node_changes import NodeChanges

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from driver.kube.client import KubeClient
    from gpuctl.heal.plan import HealPlan
    from gpuctl.heal.steps import HealStep

KIND = "Heal"
SICK_EXIT_CODE = 3
NO_RESET_EXIT_CODE = 4
NOT_HEALED_EXIT_CODE = 5

_EXIT_CODES = {None: 0, "reset": SICK_EXIT_CODE, "reboot": NO_RESET_EXIT_CODE, "other": NO_RESET_EXIT_CODE}


def looking_at(client: KubeClient, node: str, kubeconfig: Path | None, context: str | None) -> Looking:
    """How the node is looked at; raises ConfigError for a name that no node can have."""
    return Looking(ClusterView(client), checked_node_name(node), kubeconfig, context)


def show(plan: HealPlan, output: str) -> None:
    """Print the plan, of which nothing is done, and end with its exit code."""
    emit(output, document(KIND, plan.as_data()), lambda: plan_text(plan))
    click.get_current_context().exit(_EXIT_CODES[plan.remedy])


def heal(client: KubeClient, looking: Looking, plan: HealPlan, timeout_seconds: float, output: str) -> None:
    """Do what the plan says; ends with exit code 5 where the GPU is not well then.

    Raises ConfigError where the plugin cannot be asked, and ApiError for one that stays.
    """
    if plan.remedy != "reset":
        show(plan, output)
    if plan.unknown:
        raise ConfigError(f"the plugin of {plan.node} cannot be asked: {plan.unknown}", "nothing was done")
    evict = NodeChanges(client, plan.node).evict

    def tell(text: str) -> None:
        say(text, err=output != "table")

    walk = Walk(looking, evict, tell, lambda seconds: threading.Event().wait(seconds))
    with closing(looking.inside().heal(str(plan.gpu.pci), timeout_seconds)) as steps:
        left = walk.run(plan, steps)  # whoever presses Ctrl-C while it waits calls it off
    if output != "table":
        emit(output, document(KIND, {**plan.as_data(), "healed": not left, "left": list(left)}), lambda: "")
    if left:
        say("not healed:", err=True)
        for one in left:
            say(f"  {one}", err=True)
        click.get_current_context().exit(NOT_HEALED_EXIT_CODE)


def heal_here(steps: Iterator[HealStep], output: str) -> None:
    """Print the steps of the plugin of this node as they come; exit code 5 where the last is a failure.

    As JSON each is a line of its own, for whoever follows them from outside.
    """
    last = ""
    told: set[str] = set()
    for step in steps:
        last = step.step
        if output == "table":
            for line in _lines(step):
                if line not in told:
                    told.add(line)
                    say(line)
        else:
            click.echo(json.dumps(step.as_data()))
    if last == "failed":
        click.get_current_context().exit(NOT_HEALED_EXIT_CODE)


def _lines(step: HealStep) -> Iterator[str]:
    gpus = ", ".join(map(str, step.gpus))
    match step.step:
        case "looked" if not step.claims and not step.processes:
            yield f"nothing is in the way of a reset of {gpus}"
        case "resets":
            yield f"{gpus}: being reset"
        case "healed":
            yield f"{gpus}: reset"
        case "failed":
            yield f"not reset: {step.message}"
        case _:
            yield from (f"in the way: claim {claim}" for claim in step.claims)
            for one in step.processes:
                pod = f", in the pod with UID {one.pod}" if one.pod else ""
                yield f"in the way: process {one.process_id} ({one.name}){pod}"
