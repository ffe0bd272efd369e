"""The command ``python -m tools.scenarios``: run scenarios, keep the cluster of one, list them."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import click

from driver.errors import DriverError
from driver.process.log import configure
from envtest.client.errors import ClusterError
from envtest.client.shipped import PACKAGE_ROOT
from gpuctl.cli.failures import error_text
from gpuctl.demo.ending import signals_end_it_once
from tools.scenarios.catalogue import Scenario, scenario, scenario_names
from tools.scenarios.description import CLUSTERS, ClusterKind
from tools.scenarios.groups import Result, groups_of, run_group, run_side_by_side
from tools.scenarios.page import ScenarioWrong
from tools.scenarios.places.place import built_place, session_environment
from tools.scenarios.running import Failure

_CLUSTER = click.option(
    "--cluster",
    "kind",
    type=click.Choice(CLUSTERS),
    default="embedded",
    show_default=True,
    help="Kubernetes within this command, or real binaries on this machine (needs root).",
)
_COLOURS = {"- ": "red", "+ ": "green"}
_MOST_LINES = 60


class Report:
    """Prints results as they come, and counts those that failed."""

    def __init__(self) -> None:
        self.ran, self.failed = 0, 0

    def show(self, result: Result) -> None:
        """Print the result of a scenario; of one that failed where, what was run, and what came instead."""
        self.ran += 1
        failure = result.failure
        after = f"  after {result.start_seconds:.1f} s for its cluster" if result.start_seconds > 1 else ""
        word = click.style("ok     ", fg="green") if failure is None else click.style("FAILED ", fg="red")
        lines = [f"{word}{result.name:<34} {result.seconds:6.1f} s{after}"]
        if failure is not None:
            self.failed += 1
            lines.append(
                click.style(f"  {_shown(Path(result.file))}:{failure.line}: {failure.reason}", bold=True)
            )
            lines += [click.style(f"    $ {one}", fg="cyan") for one in failure.command.splitlines()]
            output = failure.output.splitlines()
            lines += [click.style(f"    {one}", fg=_COLOURS.get(one[:2])) for one in output[:_MOST_LINES]]
            if len(output) > _MOST_LINES:
                lines.append(f"    and {len(output) - _MOST_LINES} more lines")
        # In one call, so that lines about clusters that run side by side do not mix.
        click.echo("\n".join(lines))


def _shown(file: Path) -> Path:
    return file.relative_to(PACKAGE_ROOT) if file.is_relative_to(PACKAGE_ROOT) else file


def keep(scenario: Scenario, kind: ClusterKind, say: Callable[[str], None]) -> None:
    """Build the cluster of a scenario, say how a shell reaches it, and wait for KeyboardInterrupt."""
    # The embedded cluster needs nothing of Kubernetes but kubectl. The user's own saves building one, which
    # takes Go and minutes.
    own = shutil.which("kubectl") if kind == "embedded" else None
    if own is None and kind == "embedded":
        say("there is no kubectl on the PATH: one is built unless it was before, which takes Go and minutes")
    with (
        built_place(scenario.description.wanted, kind, Path(own).absolute() if own else None) as place,
        tempfile.TemporaryDirectory(prefix="scenario-") as home,
    ):
        environment = session_environment(place, Path(home))
        taken = {name: shlex.quote(environment[name]) for name in ("KUBECONFIG", *place.environment)}
        taken["PATH"] = f"{shlex.quote(str(place.programs))}:$PATH"
        words = " ".join(f"{name}={value}" for name, value in taken.items())
        # Around the message too: a reader may press Ctrl-C before the wait has begun.
        try:
            page = _shown(scenario.page.file)
            say(f"export {words}\n\nFollow {page} in a shell with these, from the root of this checkout.")
            say("The cluster runs until Ctrl-C.")
            threading.Event().wait()
        except KeyboardInterrupt:
            say("ending the cluster")


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
    report = Report()
    begun = time.monotonic()
    found = [_read(name, report) for name in names or scenario_names()]
    wanted = [one for one in found if one and (long or names or not one.description.long)]
    for one in wanted:
        if kind not in one.description.clusters:
            click.echo(f"-      {one.name:<34} not on {kind}: {one.description.why}")
    groups = groups_of([one for one in wanted if kind in one.description.clusters])
    with signals_end_it_once():
        if jobs > 1:
            run_side_by_side(groups, kind, jobs, report.show)
        else:
            for group in groups:
                run_group(group, kind, report.show)
    seconds = time.monotonic() - begun
    click.echo(f"{report.ran - report.failed} of {report.ran} scenarios ran as written, in {seconds:.0f} s")
    sys.exit(1 if report.failed else 0)


@commands.command("keep")
@click.argument("name")
@_CLUSTER
def keep_one(name: str, kind: ClusterKind) -> None:
    """Start the cluster of a scenario, print how a shell reaches it, and keep it until Ctrl-C."""
    kept = scenario(name)
    if kind not in kept.description.clusters:
        raise click.UsageError(f"{name} does not run on --cluster {kind}: {kept.description.why}")
    with signals_end_it_once():
        keep(kept, kind, click.echo)


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
    """A scenario; None for one that cannot be used, which counts as failed while the others run."""
    try:
        return scenario(name)
    except ScenarioWrong as error:
        report.show(Result(name, name, 0.0, 0.0, Failure(1, "", error_text(error))))
        return None


def main() -> None:
    """Run the command line."""
    configure("warning", sys.stderr)
    try:
        commands(prog_name="python -m tools.scenarios")
    except (DriverError, ClusterError) as error:
        click.echo(f"scenarios: {error_text(error)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
