"""Reads which machines a simulated cluster consists of, from the command line."""

from __future__ import annotations

import re

import click

MOST_NODES = 100_000


def read_machines(nodes: str, machine: str | None) -> tuple[tuple[str, int], ...]:
    """Machines with how many nodes have each: ``4`` of ``--machine``, or ``hgx-h100=4,a30-quad=2``.

    Raises UsageError.
    """
    found: tuple[tuple[str, int], ...]
    if machine is not None:
        if not nodes.isascii() or not nodes.isdigit():
            raise click.UsageError(
                f"--nodes {nodes} is no number: with --machine it says how many like nodes"
            )
        found = ((machine, int(nodes)),)
    else:
        found = tuple(_machine(one) for one in nodes.split(","))
    total = sum(count for _, count in found)
    if not all(count for _, count in found) or total > MOST_NODES:
        raise click.UsageError(f"--nodes {nodes}: between 1 and {MOST_NODES:,} nodes can be simulated")
    return found


def _machine(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?P<machine>.+)=(?P<count>[0-9]{1,9})", text)
    if match is None:
        raise click.UsageError(
            f"--nodes {text}: name the --machine of so many nodes, or write machines: hgx-h100=4,a30-quad=2"
        )
    return match["machine"], int(match["count"])
