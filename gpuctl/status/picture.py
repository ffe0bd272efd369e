"""The output of ``status``: the document for scripts; for people tables, and a line for what is amiss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from driver.health.remedies import leading
from gpuctl.cli.output import columns, say, some_of
from gpuctl.fleet.memory import bytes_text, memory_lines, not_held
from gpuctl.fleet.nodes import NodeState, NodeView, Tainted, TierCount
from gpuctl.status.live_picture import sum_of

HEADS = (
    *("node", "gpu", "tier", "devices", "allocated", "free", "at-once"),
    *("excluded", "unavailable", "claims"),
)
_WIDE_HEADS = (*HEADS, "claims-left", "driver")
_ONLY_WIDE = frozenset({"at-once", "unavailable", "claims-left", "driver"})
_SUM_HEADS = ("gpu", "tier", "nodes", *(head for head in HEADS[3:] if head not in _ONLY_WIDE))
_MOST_NAMED = 5

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """What `gpuctl status` prints: the nodes with GPUs of this driver."""

    nodes: tuple[NodeState, ...]
    problems: tuple[str, ...]
    """What is wrong that no node shows, a sentence each."""
    unread: tuple[str, ...]
    """What this user may not read, and is therefore not checked."""


@dataclass(frozen=True, slots=True)
class Form:
    """How the tables look: ``by_node`` has a row for each tier of each node, else the nodes are summed up."""

    by_node: bool
    wide: bool = False

    def table(self, nodes: Sequence[NodeState]) -> tuple[tuple[str, ...], list[Row]]:
        """The heads and the rows."""
        if not self.by_node:
            return _SUM_HEADS, list(_sums(nodes))
        found = rows(nodes, wide=True)
        if self.wide:
            return _WIDE_HEADS, found
        kept = [place for place, head in enumerate(_WIDE_HEADS) if head not in _ONLY_WIDE]
        return tuple(_WIDE_HEADS[place] for place in kept), [
            tuple(row[place] for place in kept) for row in found
        ]


def picture(views: Sequence[NodeView], problems: Sequence[str], unread: Sequence[str], form: Form) -> str:
    """The tables, the cluster in one line, what memory shares hold and use, then what is amiss.

    ``problems`` are what the nodes do not show, ``unread`` is what this user may not read.
    """
    nodes = [view.state for view in views]
    lines = [*sentences(nodes), *problems] or ["all is well"] * bool(nodes)
    if unread:
        lines.append(f"not checked, because this user may not read them: {', '.join(unread)}")
    if not nodes:
        return "\n".join(("no node publishes GPUs of this driver", *lines))
    heads, found = form.table(nodes)
    table = [columns(heads, found), ""] if found else []
    return "\n".join((*table, sum_of(views).plain, *_memory(nodes, form), *lines))


def _memory(nodes: Sequence[NodeState], form: Form) -> list[str]:
    """What shares with a memory limit hold and use, by GPU or in all."""
    if form.by_node:
        return [line for node in nodes for line in memory_lines(node.name, node.memory, wide=form.wide)]
    gpus = [gpu for node in nodes for gpu in node.memory]
    if not gpus:
        return []
    used = [gpu.used_bytes for gpu in gpus if gpu.used_bytes is not None]
    uses = f", use {bytes_text(sum(used))}" if len(used) == len(gpus) else ""
    number = sum(len(gpu.shares) for gpu in gpus)
    return [
        f"shares with a memory limit: {number}, hold {bytes_text(sum(one.held_bytes for one in gpus))}{uses}"
    ]


def _sums(nodes: Iterable[NodeState]) -> Iterator[Row]:
    """A row for each tier of each GPU model."""
    counts: dict[tuple[str, str], list[TierCount]] = {}
    for node in nodes:
        for tier, count in node.tiers.items():
            counts.setdefault((node.product or "-", tier), []).append(count)
    for (product, tier), ones in sorted(counts.items()):
        sums = (
            *(len(ones), sum(one.devices for one in ones), sum(one.allocated for one in ones)),
            *(sum(one.free for one in ones), sum(one.excluded for one in ones)),
            sum(one.claims for one in ones),
        )
        yield product, tier, *map(str, sums)


def rows(nodes: Iterable[NodeState], *, wide: bool) -> list[Row]:
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


def sentences(nodes: Iterable[NodeState]) -> Iterator[str]:
    """What is amiss and what to do, a line for each fault."""
    for names, text in faults(nodes):
        yield f"{some_of(names, _MOST_NAMED)}: {text}"


def faults(nodes: Iterable[NodeState]) -> Iterator[tuple[list[str], str]]:
    """Each fault with what to do and the nodes that have it, however many of their GPUs have it."""
    having: dict[str, list[str]] = {}
    for node in nodes:
        for text in _of_node(node):
            having.setdefault(text, []).append(node.name)
    for text, names in having.items():
        yield names, text


def _of_node(node: NodeState) -> Iterator[str]:
    if node.pool_problem:
        yield f"no device of this pool can be allocated: {node.pool_problem}"
    if node.missing:
        yield node.missing
    whole = [one for one in node.tainted if len(one.devices) == one.of_gpu]
    yield from _together((_gpu(one), _fault(one)) for one in whole)
    yield from (f"{_part(one)}: {_fault(one)}" for one in node.tainted if one not in whole)
    yield from not_held(node.memory)
    yield from _together((one.device, f"no partitions: {one.reason}") for one in node.withheld_partitions)


def _together(faults: Iterable[tuple[str, str]]) -> Iterator[str]:
    """A line for each fault of these GPUs."""
    having: dict[str, list[str]] = {}
    for gpu, fault in faults:
        having.setdefault(fault, []).append(gpu)
    for fault, gpus in having.items():
        yield f"{gpus[0] if len(gpus) == 1 else f'{len(gpus)} GPUs'}: {fault}"


def _fault(one: Tainted) -> str:
    """What the taints mean and what to do, then the taints: ``kubectl`` and tolerations name these."""
    taints = f"tainted {', '.join(map(str, one.taints))}"
    remedy = leading(one.taints)
    return f"{remedy} ({taints})" if remedy else taints


def _gpu(one: Tainted) -> str:
    if one.of_gpu == 1:
        return one.devices[0]
    return one.gpu if one.index is None else f"GPU {one.index} ({one.gpu})"


def _part(one: Tainted) -> str:
    number = len(one.devices)
    return f"{_gpu(one)}: {one.devices[0] if number == 1 else f'{number} of its {one.of_gpu} devices'}"


class News:
    """Prints what changed since it printed last: ``status --watch`` in a pipe."""

    def __init__(self, nodes: Sequence[NodeState], problems: Sequence[str], form: Form) -> None:
        self._form = form
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
        heads, _ = self._form.table(nodes)
        found = columns(heads, changed, no_heads=True).splitlines() if changed else []
        found += [f"gone: {node}, {tier}" for node, tier in known if (node, tier) not in self._rows]
        found += [one for one in self._sentences if one not in former]
        found += [f"resolved: {one}" for one in former if one not in self._sentences]
        return found

    def _of(
        self, nodes: Sequence[NodeState], problems: Sequence[str]
    ) -> tuple[dict[tuple[str, str], Row], list[str]]:
        _, found = self._form.table(nodes)
        return {(row[0], row[2]): row for row in found}, [*sentences(nodes), *problems]
