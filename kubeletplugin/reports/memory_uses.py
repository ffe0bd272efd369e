"""Metrics: the memory limits of claims, and what their containers use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from driver.process.metrics.table import Reading
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, standing
from kubeletplugin.kubelet.wire.containers import ContainerMemory

Containers = tuple[ContainerMemory, ...]

MEMORY_SERIES = tuple(
    f"gpu_dra_{holder}_memory_{amount}_bytes"
    for holder in ("claim", "container")
    for amount in ("guaranteed", "limit", "used")
)


@dataclass(frozen=True, slots=True)
class _Amounts:
    """The guaranteed, the most, and the used memory in bytes; ``used_bytes`` is None if unknown."""

    guaranteed_bytes: int
    limit_bytes: int
    used_bytes: int | None

    def readings(self, holder: str, labels: Mapping[str, str]) -> Iterator[Reading]:
        yield Reading(f"gpu_dra_{holder}_memory_guaranteed_bytes", labels, self.guaranteed_bytes)
        yield Reading(f"gpu_dra_{holder}_memory_limit_bytes", labels, self.limit_bytes)
        if self.used_bytes is not None:
            yield Reading(f"gpu_dra_{holder}_memory_used_bytes", labels, self.used_bytes)


def memory_uses(
    entries: Iterable[Entry], generation: str, read_containers: Callable[[], Containers | None]
) -> Iterator[Reading]:
    """The memory limits of prepared claims, and how much is used.

    ``read_containers()`` returns the memory of live containers, None while the use is unknown; it is called
    only if a claim has limits. Containers of other claims are left out, since their claims are being
    unprepared.
    """
    limited = list(_limited(entries, generation))
    if not limited:
        return
    containers = read_containers()
    of_device: defaultdict[tuple[str, str], list[ContainerMemory]] = defaultdict(list)
    # A container is found by the claim's UID and the CDI device, which its hook was called with.
    for one in containers or ():
        of_device[one.claim_uid, one.cdi_device].append(one)
    for entry, held in limited:
        members, memory = of_device[entry.uid, held.cdi_device], held.memory
        if memory is not None:
            labels = held_labels(entry, held)
            used_bytes = None if containers is None else used_together(members)
            amounts = _Amounts(memory.guaranteed_bytes, memory.most_bytes, used_bytes)
            yield from amounts.readings("claim", labels)
            yield from _of_containers(labels, members)


def held_labels(entry: Entry, held: HeldDevice) -> dict[str, str]:
    """The labels of a device: its claim, its name, and its GPU."""
    return {
        "claim_namespace": entry.namespace,
        "claim": entry.name,
        "device": held.device,
        "share_id": held.share_id or "",
        "uuid": held.uuid,
        "pci_bus_id": held.pci,
    }


def used_together(containers: Iterable[ContainerMemory]) -> int | None:
    """The memory that containers use together; None if one amount is unknown."""
    amounts = [one.used_bytes for one in containers]
    # A sum without one of its parts would look like a drop in use.
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _limited(entries: Iterable[Entry], generation: str) -> Iterator[tuple[Entry, HeldDevice]]:
    """The devices with limits, of prepared claims."""
    for entry in entries:
        if standing(entry, generation).is_prepared:
            for held in entry.devices:
                if held.memory is not None:
                    yield entry, held


def _of_containers(labels: Mapping[str, str], members: Iterable[ContainerMemory]) -> Iterator[Reading]:
    """The readings of containers, added up by name: a restarting container may exist twice for a moment."""
    named: defaultdict[tuple[str, str], list[ContainerMemory]] = defaultdict(list)
    for one in members:
        named[one.pod, one.container].append(one)
    for (pod, container), same in sorted(named.items()):
        amounts = _Amounts(
            sum(one.soft_bytes for one in same),
            sum(one.hard_bytes for one in same),
            used_together(same),
        )
        yield from amounts.readings("container", {**labels, "claim_pod": pod, "claim_container": container})
