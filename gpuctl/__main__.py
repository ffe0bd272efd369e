"""The operator's command: its subcommands, and errors as one line instead of a traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from driver.errors import DriverError
from envtest.client.errors import ClusterError
from gpuctl.cli.lazy_group import LazyGroup
from gpuctl.command_list import COMMANDS
from gpuctl.completion.command import VARIABLE
from kubernetes_rules.errors import RuleError

PLUGIN = "kubectl-gpu"
"""Under this name kubectl finds the program, as ``kubectl gpu``."""


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gpu-dra", message="gpuctl %(version)s")
def commands() -> None:
    """See how GPUs are offered and handed out in Kubernetes."""


def main() -> None:
    """Run the command line; exit code 0, 1 for a failure, 2 for a wrong command line."""
    called = Path(sys.argv[0]).stem
    try:
        commands(prog_name="kubectl gpu" if called == PLUGIN else "gpuctl", complete_var=VARIABLE)
    except (DriverError, RuleError, ClusterError, OSError) as error:
        from gpuctl.cli.failures import told
        from gpuctl.cli.output import say

        say(f"gpuctl: {told(error)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
