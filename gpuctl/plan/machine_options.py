"""The options ``--machine``, ``--config`` and ``--node-labels``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from driver.errors import ConfigError
from gpuctl.cli.cluster_options import matching
from gpuctl.cli.failures import error_text

Command = TypeVar("Command", bound=Callable[..., Any])


def machine_option(default: str | None = None) -> Callable[[Command], Command]:
    """Add ``--machine``, with the names of the shipped machines and the instance types for completion."""

    def add(command: Command) -> Command:
        return click.option(
            "--machine",
            metavar="NAME|FILE",
            default=default,
            show_default=default is not None,
            shell_complete=complete_machines,
            callback=_existing,
            help="A machine that `gpuctl plan --machines` lists, or a machine file.",
        )(command)

    return add


def _existing(ctx: click.Context, _param: click.Parameter, machine: str | None) -> str | None:
    if machine is not None and not ctx.resilient_parsing:
        check_exists(machine)
    return machine


def check_exists(machine: str) -> None:
    """Raise UsageError if neither a shipped machine, an instance type nor a file has the name."""
    from fakegpu.machine.spec import load_machine

    if not Path(machine).exists():
        try:
            load_machine(machine)
        except ConfigError as error:
            raise click.UsageError(error_text(error)) from error


def complete_machines(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shipped machines and the instance types; if none fits the word, the shell completes a file."""
    from fakegpu.machine.spec import instance_types, known_machines

    names = (*known_machines(), *instance_types())
    machines = [CompletionItem(name) for name in matching(names, incomplete)]
    return machines or [CompletionItem(incomplete, type="file")]


def config_options(what: str) -> Callable[[Command], Command]:
    """Add ``--config``, a path or None, and ``--node-labels``, a mapping or None."""

    def add(command: Command) -> Command:
        labels = click.option(
            "--node-labels",
            metavar="KEY=VALUE,...",
            callback=_labels,
            help="The labels of the node, by which --config chooses a pool.",
        )
        config = click.option(
            "--config", type=click.Path(exists=True, dir_okay=False, path_type=Path), help=what
        )
        return config(labels(command))

    return add


def _labels(_ctx: click.Context, _param: click.Parameter, value: str | None) -> dict[str, str] | None:
    return None if value is None else read_labels(value)


def read_labels(value: str) -> dict[str, str]:
    """The labels of ``KEY=VALUE,...``; raises BadParameter."""
    pairs = [pair.partition("=") for pair in value.split(",") if pair]
    wrong = next(("".join(pair) for pair in pairs if not pair[0] or not pair[1]), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong} is not KEY=VALUE")
    return {key: given for key, _, given in pairs}
