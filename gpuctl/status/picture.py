"""Says for people how the nodes are: a row for each tier of a node, and a sentence for each thing amiss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpuctl.cli.columns import columns
from gpuctl.status.memory import memory_lines, not_held, shown

if TYPE_CHECKING:
    from gpuctl.status.deleted_claims import Orphan
    from gpuctl.status.fleet import NodeState, Tainted, TierCount

HEADS = (
    *("node", "gpu", "tier", "devices", "allocated", "free", "at-once"),
    *("excluded", "unavailable", "claims"),
)
WIDE_HEADS = (*HEADS, "claims-left", "driver")

Row = tuple[str, ...]


_MOST_NAMED = 5


def picture(
    nodes: Sequence[NodeState],
    orphans: Sequence[Orphan] = (),
    waiting: Sequence[str] = (),
    *,
    wide: bool,
) -> str:
    """The rows below their heads, then what memory is held and used, then what is amiss.

    ``waiting`` are the pods for which the scheduler has no devices, as ``namespace/name``.
    """
    if not nodes:
        return "no node publishes GPUs of this driver"
    heads = WIDE_HEADS if wide else HEADS
    lines = [*sentences(nodes), *map(str, orphans), *_wait(waiting)] or ["all is well"]
    memory = [line for node in nodes for line in memory_lines(node.name, node.memory, wide=wide)]
    return "\n".join((columns(heads, rows(nodes, wide=wide)), "", *memory, *([""] if memory else []), *lines))


def size(part: float, memory_bytes: int | None) -> str:
    """What a claim has of a GPU: its memory; of a share that was given none, how much of the GPU it is."""
    return f"{100 * part:.0f}%" if memory_bytes is None else shown(memory_bytes)


def _wait(pods: Sequence[str]) -> Iterator[str]:
    if pods:
        more = f" and {len(pods) - _MOST_NAMED} more" if len(pods) > _MOST_NAMED else ""
        count = "1 pod waits" if len(pods) == 1 else f"{len(pods)} pods wait"
        yield f"{count} for devices: {', '.join(pods[:_MOST_NAMED])}{more}; gpuctl explain says why"


def rows(nodes: Sequence[NodeState], *, wide: bool) -> list[Row]:
    """A row for each tier of each node; a node that offers nothing has one, too."""
    found = []
    for node in nodes:
        for tier, count in sorted(node.tiers.items()):
            found.append(_row(node, tier, count))
        if not node.tiers:
            found.append((node.name, "-", "nothing offered", *"-" * (len(WIDE_HEADS) - 3)))
    return found if wide else [row[: len(HEADS)] for row in found]


def _row(node: NodeState, tier: str, count: TierCount) -> Row:
    numbers = (
        *(count.devices, count.allocated, count.free, count.at_once),
        *(count.excluded, count.unavailable, count.claims),
    )
    left = "-" if count.claims_left is None else str(count.claims_left)
    return (node.name, node.product or "-", tier, *map(str, numbers), left, node.driver_version or "-")


def sentences(nodes: Sequence[NodeState]) -> Iterator[str]:
    """What is amiss, node by node; devices of a GPU that have the same taints are told together."""
    for node in nodes:
        if node.pool_problem:
            yield f"{node.name}: nothing of this pool can be allocated: {node.pool_problem}"
    for node in nodes:
        for one in node.tainted:
            yield f"{node.name}: {_who(one)} tainted {', '.join(map(str, one.taints))}"
    for node in nodes:
        for line in not_held(node.memory):
            yield f"{node.name}: {line}"
    for node in nodes:
        for held in node.withheld_partitions:
            yield f"{node.name}: {held.device}: no partitions: {held.reason}"


def _who(one: Tainted) -> str:
    """The GPU with the devices that are meant: ``GPU 0 (0000:1b:00.0), 3 of its 15 devices, are``."""
    if one.of_gpu == 1:
        return f"{one.devices[0]} is"
    gpu = one.gpu if one.index is None else f"GPU {one.index} ({one.gpu})"
    if len(one.devices) == one.of_gpu:
        return f"{gpu}: all {one.of_gpu} devices of it are"
    if len(one.devices) == 1:
        return f"{gpu}: {one.devices[0]} is"
    return f"{gpu}: {len(one.devices)} of its {one.of_gpu} devices are"
