"""The output of ``status``: the document for scripts; for people tables, and a line for what is amiss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from driver.health.remedies import leading
from driver.kinds.channel import CliqueState
from gpuctl.cli.output import columns, say, some_of
from gpuctl.fleet.memory import bytes_text, memory_lines, not_held
from gpuctl.fleet.nodes import NodeState, NodeView, Tainted, TierCount
from gpuctl.status.live_picture import sum_of

_COUNTS = ("devices", "allocated", "free", "at_once", "excluded", "unavailable", "claims")
_ONLY_WIDE = frozenset({"at-once", "unavailable", "claims-left", "driver"})
_SUMMED = ("devices", "allocated", "free", "excluded", "claims")
_HEADS = ("node", "gpu", "tier", *(name.replace("_", "-") for name in _COUNTS), "claims-left", "driver")
_MOST_NAMED = 5

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """What `gpuctl status` prints: the nodes with GPUs of this driver."""

    nodes: tuple[NodeState, ...]
    problems: tuple[str, ...]
    """What is wrong that no node shows, and which nodes are cordoned, a sentence each."""
    unread: tuple[str, ...]
    """What this user may not read, and is therefore not checked."""
    cliques: tuple[CliqueState, ...]
    """The NVLink cliques whose IMEX channels are published."""


@dataclass(frozen=True, slots=True)
class Form:
    """How the tables look: ``by_node`` has a row for each tier of each node, else the nodes are summed up."""

    by_node: bool
    wide: bool = False

    def table(self, nodes: Sequence[NodeState]) -> tuple[tuple[str, ...], list[Row]]:
        """The heads and the rows."""
        if not self.by_node:
            return ("gpu", "tier", "nodes", *_SUMMED), list(_sums(nodes))
        kept = [place for place, head in enumerate(_HEADS) if self.wide or head not in _ONLY_WIDE]
        found = [tuple(row[place] for place in kept) for row in _rows(nodes)]
        return tuple(_HEADS[place] for place in kept), found


def picture(
    views: Sequence[NodeView],
    problems: Sequence[str],
    unread: Sequence[str],
    form: Form,
    cliques: Sequence[CliqueState],
) -> str:
    """The tables, the cluster in one line, memory shares and NVLink cliques, then what is amiss.

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
    return "\n".join((*table, sum_of(views).plain, *_memory(nodes, form), *map(_clique, cliques), *lines))


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


def _clique(one: CliqueState) -> str:
    kept_back = f", {one.kept_back} kept back for nodes that are not ready" if one.kept_back else ""
    return (
        f"NVLink clique {one.name}: {len(one.nodes)} nodes, {one.channels} channels, "
        f"{one.held} of them held by claims{kept_back}"
    )


def _sums(nodes: Iterable[NodeState]) -> Iterator[Row]:
    """A row for each tier of each GPU model."""
    counts: dict[tuple[str, str], list[TierCount]] = {}
    for node in nodes:
        for tier, count in node.tiers.items():
            counts.setdefault((node.product or "-", tier), []).append(count)
    for (product, tier), ones in sorted(counts.items()):
        sums = (sum(getattr(one, name) for one in ones) for name in _SUMMED)
        yield product, tier, str(len(ones)), *map(str, sums)


def _rows(nodes: Iterable[NodeState]) -> Iterator[Row]:
    """A row for each tier of each node; a node that offers nothing has a row as well."""
    for node in nodes:
        for tier, count in sorted(node.tiers.items()):
            numbers = (str(getattr(count, name)) for name in _COUNTS)
            left = "-" if count.claims_left is None else str(count.claims_left)
            yield node.name, node.product or "-", tier, *numbers, left, node.driver_version or "-"
        if not node.tiers:
            yield node.name, "-", "nothing offered", *"-" * (len(_HEADS) - 3)


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

    def tell(self, nodes: Sequence[NodeState], problems: Sequence[str], _: Sequence[CliqueState]) -> None:
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
