"""The command ``python -m tools.testbed.kubectl``: compares what kubectl answers on both kinds of cluster."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import click

from envtest.client.errors import ClusterError
from envtest.embedded.cluster import EmbeddedCluster
from envtest.real.build import DEFAULT_KUBERNETES
from envtest.real.startup import start_cluster
from tools.testbed.kubectl.comparing import Answer, differences, read, written
from tools.testbed.kubectl.older_versions import VERSIONS, kubectl
from tools.testbed.kubectl.running import ANSWERS, answers, commands


@click.group()
def main() -> None:
    """Run the same kubectl commands on a real and on the embedded cluster."""


@main.command()
def record() -> None:
    """Run the commands on a real cluster (root) and write the recorded answers anew."""
    ANSWERS.write_text(written(_on_real(kubectl(DEFAULT_KUBERNETES))))


@main.command()
@click.option(
    "--kubectl",
    "version",
    type=click.Choice([*VERSIONS, DEFAULT_KUBERNETES]),
    default=DEFAULT_KUBERNETES,
    show_default=True,
    help="The minor version of kubectl. The first use of an older one builds it.",
)
def compare(version: str) -> None:
    """Print what is answered differently, and exit with 1 if there is anything.

    With the default version, the embedded cluster is compared with the recorded answers, with another one
    with a real cluster (root), which has the default version.
    """
    program = kubectl(version)
    real = read(ANSWERS.read_text()) if version == DEFAULT_KUBERNETES else _on_real(program)
    with EmbeddedCluster() as cluster:
        ours = list(answers(program, cluster.admin, commands(), real))
    found = list(differences(real, ours))
    for difference in found:
        click.echo(difference)
    click.echo(f"kubectl {version}: {len(real)} commands, {len(found)} answered differently")
    sys.exit(1 if found else 0)


def _on_real(program: Path) -> list[Answer]:
    with tempfile.TemporaryDirectory() as folder, start_cluster(folder=Path(folder, "cluster")) as cluster:
        return list(answers(program, cluster.admin, commands()))


if __name__ == "__main__":
    try:
        main()
    except ClusterError as error:
        sys.exit(str(error))
