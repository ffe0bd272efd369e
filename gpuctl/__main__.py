"""The command ``gpuctl``: its subcommands, and errors as one line instead of a traceback."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from driver.errors import DriverError
from envtest.client.errors import ClusterError
from gpuctl.completion.command import VARIABLE
from kubernetes_rules.errors import RuleError

PLUGIN = "kubectl-gpu"
"""Under this name kubectl finds the program, as ``kubectl gpu``."""


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command is, as ``module:name``, and its sentence in the help."""

    place: str
    summary: str
    is_listed: bool = True
    """Whether the help lists it: not the commands that only programs and shells call."""

    def load(self) -> click.Command:
        """Import the command."""
        module, _, name = self.place.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run, or when their own options are asked for."""

    def __init__(self, *, lazy: Mapping[str, LazyCommand], **settings: Any) -> None:
        super().__init__(**settings)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 # click's signature
        """The names in their alphabetical order."""
        return sorted(name for name, command in self._lazy.items() if command.is_listed)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 # likewise
        """Import the command; None where there is none of this name."""
        found = self._lazy.get(cmd_name)
        return found.load() if found else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of the first word; for a word that is none, an error that names the right one."""
        name = args[0]
        # While a shell completes there is nobody to read an error.
        if name not in self._lazy and not name.startswith("-") and not ctx.resilient_parsing:
            close = get_close_matches(name, self.list_commands(ctx), n=1)
            meant = f"did you mean {close[0]}?" if close else f"`{ctx.command_path} --help` lists them."
            ctx.fail(f"There is no command {name}: {FORMER.get(name, meant)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; Ctrl-C ends it with exit code 130, where click's own answer is 1."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            from gpuctl.cli.output import INTERRUPTED_EXIT_CODE

            ctx.exit(INTERRUPTED_EXIT_CODE)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands with their summaries, which are whole sentences and never cut."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._lazy[name].summary) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names and the group's own options, without importing a command."""
        names = [
            CompletionItem(name, help=self._lazy[name].summary)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


# A shell calls the program at each TAB, so completion and help must not import what the commands need.
COMMANDS = {
    "completion": LazyCommand(
        "gpuctl.completion.command:completion", "Print the completion script for a shell.", is_listed=False
    ),
    "demo": LazyCommand(
        "gpuctl.demo.command:demo", "Show how pods get GPUs, without a GPU and without a cluster."
    ),
    "describe": LazyCommand("gpuctl.describe.command:describe", "Show all about a node, a GPU or a claim."),
    "doctor": LazyCommand(
        "gpuctl.doctor.command:doctor", "Say what is wrong with the cluster or a node, and what to do."
    ),
    "explain": LazyCommand(
        "gpuctl.explain.command:explain", "Say why pods or claims wait, and what would help."
    ),
    "gather": LazyCommand("gpuctl.gather.command:gather", "Write a bug report without secrets."),
    "heal": LazyCommand(
        "gpuctl.heal.command:heal",
        "Say what is wrong with a GPU, and empty and reset it.",
    ),
    "import": LazyCommand(
        "gpuctl.importing.command:import_", "Turn the configuration of other tools into one of this driver."
    ),
    "plan": LazyCommand(
        "gpuctl.plan.command:plan", "Show what a node would publish, and what would fit on its GPUs."
    ),
    "probe": LazyCommand(
        "gpuctl.probe.command:probe",
        "Say whether a container has the GPUs that its claim promises.",
        is_listed=False,
    ),
    "simulate": LazyCommand(
        "gpuctl.simulate.command:simulate", "Try whether a workload fits on a number of nodes."
    ),
    "status": LazyCommand(
        "gpuctl.status.command:status", "Show what is allocated, free or unavailable, by node and tier."
    ),
    "top": LazyCommand("gpuctl.top.command:top", "Show how much of its GPUs each claim uses."),
    "verify": LazyCommand(
        "gpuctl.verify.command:verify", "Check everything on a machine with a GPU, without a cluster."
    ),
    "web": LazyCommand(
        "gpuctl.web.command:web", "Serve a page that shows the cluster's GPUs, on this machine."
    ),
}

FORMER = {
    "machines": "`gpuctl plan --machines` lists the machines.",
    "mig": "`gpuctl plan --partitions` shows which MIG partitions fit.",
    "repartition": "docs/mig.md has the steps by which a node gets other static partitions.",
    "room": "`gpuctl explain` says whose end would make room, with --for FILE before the pod exists.",
    "topology": "`gpuctl plan --topology` draws how the GPUs of a node are connected.",
}
"""What does the work of a command that was there once."""


def _say_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    from gpuctl.cli.output import own_version, say

    if value:
        say(f"gpuctl {own_version()}")
        ctx.exit()


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_say_version,
    help="Show the version.",
)
def commands() -> None:
    """See how GPUs are offered and handed out in Kubernetes."""


def main() -> None:
    """Run the command line; docs/gpuctl.md lists the exit codes."""
    called = Path(sys.argv[0]).stem
    try:
        commands(prog_name="kubectl gpu" if called == PLUGIN else "gpuctl", complete_var=VARIABLE)
    except (DriverError, RuleError, ClusterError, OSError) as error:
        # Not imported above: completion never comes here.
        from gpuctl.cli.failures import error_text
        from gpuctl.cli.output import say

        say(f"gpuctl: {error_text(error)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
