"""The command ``python -m tools.testbed.kubectl``: compares what kubectl answers on both kinds of cluster."""

from __future__ import annotations

import sys

import click

from envtest.client.errors import ClusterError
from envtest.embedded.cluster import EmbeddedCluster
from envtest.real.assets import find_assets
from envtest.real.startup import start_cluster
from tools.testbed.kubectl.comparing import differences, read, written
from tools.testbed.kubectl.running import ANSWERS, answers, commands


@click.group()
def main() -> None:
    """Run the same kubectl commands on a real and on the embedded cluster."""


@main.command()
def record() -> None:
    """Run the commands on a real cluster (root) and write the recorded answers again."""
    with start_cluster() as cluster:
        recorded = list(answers(find_assets().binary("kubectl"), cluster.admin, commands()))
    ANSWERS.write_text(written(recorded))


@main.command()
def compare() -> None:
    """Print what the embedded cluster answers otherwise than recorded; exit with 1 if there is anything."""
    real = read(ANSWERS.read_text())
    with EmbeddedCluster(https=True) as cluster:
        ours = list(answers(find_assets().binary("kubectl"), cluster.admin, commands(), real))
    found = list(differences(real, ours))
    for difference in found:
        click.echo(difference)
    click.echo(f"{len(real)} commands, {len(found)} answered differently")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    try:
        main()
    except ClusterError as error:
        sys.exit(str(error))
