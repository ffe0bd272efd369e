"""The output of ``status`` for people: a row for each tier of a node, and a sentence for what is amiss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from driver.health.remedies import leading
from gpuctl.cli.output import columns, say
from gpuctl.fleet.memory import memory_lines, not_held
from gpuctl.fleet.nodes import NodeState, Tainted, TierCount

HEADS = (
    *("node", "gpu", "tier", "devices", "allocated", "free", "at-once"),
    *("excluded", "unavailable", "claims"),
)
_WIDE_HEADS = (*HEADS, "claims-left", "driver")

Row = tuple[str, ...]


def picture(
    nodes: Sequence[NodeState], problems: Sequence[str] = (), unread: Sequence[str] = (), *, wide: bool
) -> str:
    """The rows below their heads, then what memory is held and used, then what is amiss.

    ``problems`` are what the nodes do not show, ``unread`` is what this user may not read.
    """
    lines = [*sentences(nodes), *problems]
    if nodes and not lines:
        lines = ["all is well"]
    if unread:
        lines.append(f"not checked, because this user may not read them: {', '.join(unread)}")
    if not nodes:
        return "\n".join(("no node publishes GPUs of this driver", *lines))
    heads = _WIDE_HEADS if wide else HEADS
    memory = [line for node in nodes for line in memory_lines(node.name, node.memory, wide=wide)]
    return "\n".join((columns(heads, rows(nodes, wide=wide)), "", *memory, *([""] if memory else []), *lines))


def rows(nodes: Sequence[NodeState], *, wide: bool) -> list[Row]:
    """A row for each tier of each node; a node that offers nothing has a row as well."""
    found = []
    for node in nodes:
        for tier, count in sorted(node.tiers.items()):
            found.append(_row(node, tier, count))
        if not node.tiers:
            found.append((node.name, "-", "nothing offered", *"-" * (len(_WIDE_HEADS) - 3)))
    return found if wide else [row[: len(HEADS)] for row in found]


def _row(node: NodeState, tier: str, count: TierCount) -> Row:
    numbers = (
        *(count.devices, count.allocated, count.free, count.at_once),
        *(count.excluded, count.unavailable, count.claims),
    )
    left = "-" if count.claims_left is None else str(count.claims_left)
    return (node.name, node.product or "-", tier, *map(str, numbers), left, node.driver_version or "-")


def sentences(nodes: Sequence[NodeState]) -> Iterator[str]:
    """What is amiss, node by node; devices of a GPU with the same taints share a line."""
    for node in nodes:
        if node.pool_problem:
            yield f"{node.name}: no device of this pool can be allocated: {node.pool_problem}"
        if node.missing:
            yield f"{node.name}: {node.missing}"
    for node in nodes:
        for one in node.tainted:
            remedy = leading(one.taints)
            todo = f": {remedy}" if remedy else ""
            yield f"{node.name}: {_who(one)} tainted {', '.join(map(str, one.taints))}{todo}"
    for node in nodes:
        for line in not_held(node.memory):
            yield f"{node.name}: {line}"
    for node in nodes:
        for held in node.withheld_partitions:
            yield f"{node.name}: {held.device}: no partitions: {held.reason}"


def _who(one: Tainted) -> str:
    """The beginning of a sentence: ``GPU 0 (0000:1b:00.0): 3 of its 15 devices are``."""
    if one.of_gpu == 1:
        return f"{one.devices[0]} is"
    gpu = one.gpu if one.index is None else f"GPU {one.index} ({one.gpu})"
    if len(one.devices) == one.of_gpu:
        return f"{gpu}: all of its {one.of_gpu} devices are"
    if len(one.devices) == 1:
        return f"{gpu}: {one.devices[0]} is"
    return f"{gpu}: {len(one.devices)} of its {one.of_gpu} devices are"


class News:
    """Prints what changed since it printed last: ``status --watch`` in a pipe."""

    def __init__(self, nodes: Sequence[NodeState], problems: Sequence[str] = (), *, wide: bool) -> None:
        self._wide = wide
        self._rows, self._sentences = self._of(nodes, problems)

    def tell(self, nodes: Sequence[NodeState], problems: Sequence[str]) -> None:
        """Print the changed rows, what is amiss now, and what is amiss no longer."""
        for line in self.lines(nodes, problems):
            say(line)

    def lines(self, nodes: Sequence[NodeState], problems: Sequence[str] = ()) -> list[str]:
        """The lines that ``tell`` prints; the next call compares with these nodes and problems."""
        known, former = self._rows, self._sentences
        self._rows, self._sentences = self._of(nodes, problems)
        changed = [row for key, row in self._rows.items() if known.get(key) != row]
        heads = _WIDE_HEADS if self._wide else HEADS
        found = columns(heads, changed, no_heads=True).splitlines() if changed else []
        found += [f"gone: {node}, {tier}" for node, tier in known if (node, tier) not in self._rows]
        found += [one for one in self._sentences if one not in former]
        found += [f"resolved: {one}" for one in former if one not in self._sentences]
        return found

    def _of(
        self, nodes: Sequence[NodeState], problems: Sequence[str]
    ) -> tuple[dict[tuple[str, str], Row], list[str]]:
        told = [*sentences(nodes), *problems]
        return {(row[0], row[2]): row for row in rows(nodes, wide=self._wide)}, told
