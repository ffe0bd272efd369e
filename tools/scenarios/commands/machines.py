"""Finds the fake machine of a node from a program that a scenario runs, and says what goes wrong."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import click

from driver.errors import DriverError
from fakegpu.machine.fake_machine import FakeMachine
from gpuctl.cli.failures import told

MACHINES_VARIABLE = "SCENARIO_MACHINES"
"""Where the programs find a file that says of each node where it is: a JSON object of NodeOfFakes by name."""

GPU = click.argument("gpu", type=click.IntRange(min=0))
"""A GPU by its index in nvidia-smi."""


@dataclass(frozen=True, slots=True)
class NodeOfFakes:
    """Where a node of fakes is.

    ``nvml`` is what its driver finds the machine by, ``folder`` has the machine's files, ``plugins_dir`` is
    the kubelet's folder for plugins.
    """

    nvml: str
    folder: str
    plugins_dir: str


def node_of_fakes(node: str) -> NodeOfFakes:
    """A node of the cluster; raises UsageError where there is no cluster, or no such node in it."""
    file = os.environ.get(MACHINES_VARIABLE, "")
    if not file:
        raise click.UsageError(
            f"{MACHINES_VARIABLE} is not set: python -m tools.scenarios sets it for its clusters"
        )
    nodes = json.loads(Path(file).read_text())
    if node not in nodes:
        raise click.UsageError(f"there is no node {node}: name one of {', '.join(nodes)}")
    return NodeOfFakes(**nodes[node])


def machine_of(node: str) -> FakeMachine:
    """The machine of a node of the cluster; raises what ``node_of_fakes`` raises."""
    return FakeMachine.open(node_of_fakes(node).nvml)


def run_program(command: click.Command, name: str) -> None:
    """Run a program's command line; exit code 0, 1 for a failure, 2 for a wrong command line."""
    try:
        command(prog_name=name)
    except DriverError as error:
        click.echo(f"{name}: {told(error)}", err=True)
        sys.exit(1)
