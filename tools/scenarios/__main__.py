"""The command ``python -m tools.scenarios``: run the READMEs, keep the cluster of one, list them."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from rich.console import Console

from driver.errors import DriverError
from driver.process.log import configure
from envtest.client.errors import ClusterError
from gpuctl.cli.failures import told
from gpuctl.demo.ending import signals_end_it_once
from tools.scenarios.catalogue import Scenario, scenario, scenario_names
from tools.scenarios.description import CLUSTERS, ClusterKind
from tools.scenarios.errors import ScenarioWrong
from tools.scenarios.groups import Result, groups_of, run_group
from tools.scenarios.keeping import keep
from tools.scenarios.report import Report
from tools.scenarios.running import Failure
from tools.scenarios.workers import run_side_by_side

_CLUSTER = click.option(
    "--cluster",
    "kind",
    type=click.Choice(CLUSTERS),
    default="embedded",
    show_default=True,
    help="Kubernetes within this command, or real binaries on this machine (needs root).",
)


@click.group()
def commands() -> None:
    """Run the scenarios of deploy/scenarios, and the pages of docs that name one, as a reader would."""


@commands.command()
@click.argument("names", nargs=-1)
@_CLUSTER
@click.option("--long", is_flag=True, help="Also those that are of the long variant.")
@click.option(
    "--jobs", type=click.IntRange(1, 8), default=1, show_default=True, help="Clusters side by side."
)
def run(names: tuple[str, ...], kind: ClusterKind, jobs: int, *, long: bool) -> None:
    """Run the blocks of READMEs and compare what they print, all unless NAMES are given.

    Exit codes: 0 when all ran as written, 1 when one did not, 2 for a wrong command line.
    """
    report = Report(Console())
    begun = time.monotonic()
    found = [_read(name, report) for name in names or scenario_names()]
    wanted = [one for one in found if one and (long or names or not one.description.long)]
    for one in wanted:
        if kind not in one.description.clusters:
            report.skip(one.name, kind, one.description.why)
    groups = groups_of([one for one in wanted if kind in one.description.clusters])
    with signals_end_it_once():
        if jobs > 1:
            run_side_by_side(groups, kind, jobs, report.tell)
        else:
            for group in groups:
                run_group(group, kind, report.tell)
    report.end(time.monotonic() - begun)
    sys.exit(1 if report.failed else 0)


@commands.command("keep")
@click.argument("name")
@_CLUSTER
def keep_one(name: str, kind: ClusterKind) -> None:
    """Start the cluster of a scenario, print how a shell reaches it, and keep it until Ctrl-C."""
    with signals_end_it_once():
        keep(scenario(name), kind, click.echo)


@commands.command("list")
def list_all() -> None:
    """List the scenarios: their names, how long they are, and where they run."""
    for one in map(scenario, scenario_names()):
        described = one.description
        nodes = ", ".join(Path(node.machine).name for node in described.wanted.nodes) or "no cluster"
        why = f" ({described.why})" if described.why else ""
        variant = "long " if described.long else "short"
        click.echo(f"{one.name:<34} {variant} {'+'.join(described.clusters)}{why}: {nodes}")


def _read(name: str, report: Report) -> Scenario | None:
    """A scenario; one that cannot be used counts as failed, and keeps no other from running."""
    try:
        return scenario(name)
    except ScenarioWrong as error:
        report.tell(Result(name, name, 0.0, 0.0, Failure(1, "", told(error))))
        return None


def main() -> None:
    """Run the command line."""
    configure("warning", sys.stderr)
    try:
        commands(prog_name="python -m tools.scenarios")
    except (DriverError, ClusterError) as error:
        click.echo(f"scenarios: {told(error)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
