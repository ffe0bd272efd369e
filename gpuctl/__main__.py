"""The operator's command: its subcommands, and errors as one line instead of a traceback."""

from __future__ import annotations

import sys

import click

from driver.errors import DriverError
from envtest.client.errors import ClusterError
from gpuctl.demo.command import demo
from gpuctl.explain.command import explain
from gpuctl.importing.command import import_
from gpuctl.mig.command import mig
from gpuctl.node.plan_command import plan
from gpuctl.node.topology_command import topology
from gpuctl.repartition.command import repartition
from gpuctl.simulate.command import simulate
from gpuctl.status.command import status
from kubernetes_rules.errors import RuleError


@click.group()
@click.version_option(package_name="gpu-dra", message="%(prog)s %(version)s")
def commands() -> None:
    """See how GPUs are offered and handed out in Kubernetes."""


for command in (demo, explain, import_, mig, plan, repartition, simulate, status, topology):
    commands.add_command(command)


def main() -> None:
    """Run the command line; exit code 0, 1 for a failure, 2 for a wrong command line."""
    try:
        commands(prog_name="gpuctl")
    except (DriverError, RuleError, ClusterError, OSError) as error:
        click.echo(f"gpuctl: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
