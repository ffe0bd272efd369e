"""The flags ``--config`` and ``--node-labels``: a node configuration, and which of its pools is meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def config_options(what: str) -> Callable[[Command], Command]:
    """Add both, of which ``config`` is a path or None and ``node_labels`` a mapping or None."""

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
    """Labels between commas; raises BadParameter."""
    pairs = [pair.partition("=") for pair in value.split(",") if pair]
    wrong = next(("".join(pair) for pair in pairs if not pair[0] or not pair[1]), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong} is not KEY=VALUE")
    return {key: given for key, _, given in pairs}
