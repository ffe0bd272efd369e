"""What is new since the nodes were shown last, in lines that go on below those of before, as in kubectl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuctl.cli.columns import columns
from gpuctl.cli.output import say
from gpuctl.status.picture import HEADS, WIDE_HEADS, rows, sentences

if TYPE_CHECKING:
    from gpuctl.fleet.nodes import NodeState
    from gpuctl.status.picture import Row


class News:
    """Remembers what was told. Begins with what the first picture showed."""

    def __init__(self, nodes: Sequence[NodeState], *, wide: bool) -> None:
        self._wide = wide
        self._rows, self._sentences = self._of(nodes)

    def tell(self, nodes: Sequence[NodeState]) -> None:
        """Print the changed rows, what is amiss since then, and what no longer is."""
        for line in self.lines(nodes):
            say(line)

    def lines(self, nodes: Sequence[NodeState]) -> list[str]:
        """The lines that ``tell`` prints; the next call is about what comes after."""
        known, told = self._rows, self._sentences
        self._rows, self._sentences = self._of(nodes)
        changed = [row for key, row in self._rows.items() if known.get(key) != row]
        heads = WIDE_HEADS if self._wide else HEADS
        found = columns(heads, changed, no_heads=True).splitlines() if changed else []
        found += [f"gone: {node}, {tier}" for node, tier in known if (node, tier) not in self._rows]
        found += [one for one in self._sentences if one not in told]
        found += [f"over: {one}" for one in told if one not in self._sentences]
        return found

    def _of(self, nodes: Sequence[NodeState]) -> tuple[dict[tuple[str, str], Row], list[str]]:
        return {(row[0], row[2]): row for row in rows(nodes, wide=self._wide)}, list(sentences(nodes))
