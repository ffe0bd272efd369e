"""Reads which machines a simulated cluster consists of, from the command line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import click

from gpuctl.node.config_option import read_labels

MOST_NODES = 100_000
_BETWEEN_NODES = re.compile(r",(?![^\[]*\])")
_NODES = re.compile(r"(?P<machine>[^\[]+)(?:\[(?P<labels>[^\]]*)\])?=(?P<count>[0-9]{1,9})")


@dataclass(frozen=True, slots=True)
class LikeNodes:
    """So many nodes with one machine, and their labels, None where nothing is said of labels."""

    machine: str
    count: int
    labels: Mapping[str, str] | None = None


def read_machines(nodes: str, machine: str | None) -> tuple[LikeNodes, ...]:
    """The nodes: ``4`` of ``--machine``, or ``hgx-h100=4,a30-quad[pool=notebooks]=2``. Raises UsageError."""
    found: tuple[LikeNodes, ...]
    if machine is not None:
        if not nodes.isascii() or not nodes.isdigit():
            raise click.UsageError(
                f"--nodes {nodes} is no number: with --machine it says how many like nodes"
            )
        found = (LikeNodes(machine, int(nodes)),)
    else:
        found = _with_labels([_like_nodes(one) for one in _BETWEEN_NODES.split(nodes)])
    total = sum(one.count for one in found)
    if not all(one.count for one in found) or total > MOST_NODES:
        raise click.UsageError(f"--nodes {nodes}: between 1 and {MOST_NODES:,} nodes can be simulated")
    return found


def _with_labels(found: Sequence[LikeNodes]) -> tuple[LikeNodes, ...]:
    """Where some nodes have labels, the others have none, which is more than nothing known."""
    if all(one.labels is None for one in found):
        return tuple(found)
    return tuple(replace(one, labels=one.labels or {}) for one in found)


def _like_nodes(text: str) -> LikeNodes:
    match = _NODES.fullmatch(text)
    if match is None:
        raise click.UsageError(
            f"--nodes {text}: name the --machine of so many nodes, or write machines: hgx-h100=4,a30-quad=2"
        )
    labels = None if match["labels"] is None else read_labels(match["labels"])
    return LikeNodes(match["machine"], int(match["count"]), labels)
