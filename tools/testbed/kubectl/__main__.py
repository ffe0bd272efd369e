"""The command ``python -m tools.testbed.kubectl``: compares what kubectl answers on both kinds of cluster."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import click

from envtest.client.errors import ClusterError
from envtest.client.layout import user_cache
from envtest.embedded.cluster import EmbeddedCluster
from envtest.real.assets import find_assets
from envtest.real.build import DEFAULT_KUBERNETES, built_once, digest, go_command, run_go, version_stamp
from envtest.real.startup import start_cluster
from tools.testbed.kubectl.comparing import Answer, differences, read, written
from tools.testbed.kubectl.running import ANSWERS, answers, commands

_SOURCE = Path(__file__).parent / "older"
_OLDER = {"1.32": "v1.32.3", "1.33": "v1.33.13", "1.34": "v1.34.13", "1.35": "v1.35.10", "1.36": "v1.36.6"}
_DEFAULT_MODULE = "1.36"
"""The version of go.mod; those of the others have names of their own."""


@click.group()
def main() -> None:
    """Run the same kubectl commands on a real and on the embedded cluster."""


@main.command()
def record() -> None:
    """Run the commands on a real cluster (root) and write the recorded answers again."""
    ANSWERS.write_text(written(_on_real(_kubectl(DEFAULT_KUBERNETES))))


@main.command()
@click.option(
    "--kubectl",
    "version",
    type=click.Choice([*_OLDER, DEFAULT_KUBERNETES]),
    default=DEFAULT_KUBERNETES,
    show_default=True,
    help="The minor version of kubectl. The first use of an older one builds it.",
)
def compare(version: str) -> None:
    """Print what is answered differently, and exit with 1 if there is anything.

    With the default version, the embedded cluster is compared with the recorded answers, with another one
    with a real cluster (root), which has the default version.
    """
    program = _kubectl(version)
    real = read(ANSWERS.read_text()) if version == DEFAULT_KUBERNETES else _on_real(program)
    with EmbeddedCluster(https=True) as cluster:
        ours = list(answers(program, cluster.admin, commands(), real))
    found = list(differences(real, ours))
    for difference in found:
        click.echo(difference)
    click.echo(f"kubectl {version}: {len(real)} commands, {len(found)} answered differently")
    sys.exit(1 if found else 0)


def _kubectl(version: str) -> Path:
    """The program of a minor version, built first where it is not there: about two minutes of processor time.

    Raises:
        MissingPrerequisite: it is not built yet, and there is no Go.
        BuildFailed: Go failed.
    """
    if version == DEFAULT_KUBERNETES:
        return find_assets(version).binary("kubectl")
    target = user_cache(os.environ) / "go-programs" / f"kubectl-{version}-{digest(_SOURCE)}"
    return built_once(target, lambda folder: _build(folder, version)) / "kubectl"


def _build(folder: Path, version: str) -> None:
    modules = [] if version == _DEFAULT_MODULE else [f"-modfile={version}.mod"]
    build = [go_command(os.environ), "build", *modules, "-trimpath", "-buildvcs=false"]
    flags = ["-ldflags", version_stamp(_OLDER[version]), "-o", str(folder / "kubectl")]
    run_go([*build, *flags, "."], _SOURCE, {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"})


def _on_real(program: Path) -> list[Answer]:
    with tempfile.TemporaryDirectory() as folder, start_cluster(folder=Path(folder, "cluster")) as cluster:
        return list(answers(program, cluster.admin, commands()))


if __name__ == "__main__":
    try:
        main()
    except ClusterError as error:
        sys.exit(str(error))
