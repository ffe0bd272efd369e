"""The flag ``--machine``: a machine that ships with the driver, or a machine file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from gpuctl.cli.values import matching

Command = TypeVar("Command", bound=Callable[..., Any])

_WHAT = "A machine that `gpuctl machines` lists, or a machine file."


def machine_option(
    *, required: bool = False, default: str | None = None, what: str = _WHAT
) -> Callable[[Command], Command]:
    """Add ``--machine``, with the names of the shipped machines for completion."""

    # A default of None is one to click, and an option with a default is never missing.
    given: dict[str, Any] = {"required": required}
    if default is not None:
        given = {"default": default, "show_default": True}

    def add(command: Command) -> Command:
        return click.option(
            "--machine",
            metavar="NAME|FILE",
            **given,
            shell_complete=_machines,
            help=what,
        )(command)

    return add


def _machines(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The shipped machines; where none begins so, the shell completes a file."""
    from fakegpu.machine.spec import known_machines

    found = [CompletionItem(name) for name in matching(known_machines(), incomplete)]
    return found or [CompletionItem(incomplete, type="file")]
