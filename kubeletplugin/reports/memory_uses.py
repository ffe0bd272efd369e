"""Combines the memory limits of claims with what their containers use, for the metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from driver.process.metrics.table import Reading
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, standing
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.kubelet.wire.containers import ContainerMemory

Containers = tuple[ContainerMemory, ...]

MEMORY_SERIES = tuple(
    f"gpu_dra_{holder}_memory_{amount}_bytes"
    for holder in ("claim", "container")
    for amount in ("guaranteed", "limit", "used")
)


@dataclass(frozen=True, slots=True)
class _Amounts:
    """What somebody is guaranteed, gets at most, and uses, in bytes; ``used_bytes`` is None where unknown."""

    guaranteed_bytes: int
    limit_bytes: int
    used_bytes: int | None

    def told(self, holder: str, labels: Mapping[str, str]) -> Iterator[Reading]:
        yield Reading(f"gpu_dra_{holder}_memory_guaranteed_bytes", labels, self.guaranteed_bytes)
        yield Reading(f"gpu_dra_{holder}_memory_limit_bytes", labels, self.limit_bytes)
        if self.used_bytes is not None:
            yield Reading(f"gpu_dra_{holder}_memory_used_bytes", labels, self.used_bytes)


def memory_uses(
    entries: Iterable[Entry], era: Era, look: Callable[[], Containers | None]
) -> Iterator[Reading]:
    """The memory that prepared claims of this era are held to on GPUs, and what of it is used.

    ``look()`` gives what live containers have, None while nobody knows what is used; it is not asked where
    nobody is held to anything. What containers of other claims have is left out:
    their claims are being let go.
    """
    limited = list(_limited(entries, era))
    if not limited:
        return
    containers = look()
    of_device: defaultdict[tuple[str, str], list[ContainerMemory]] = defaultdict(list)
    for one in containers or ():
        of_device[one.claim_uid, one.cdi_device].append(one)
    for entry, held in limited:
        members, memory = of_device[entry.uid, held.cdi_device], held.memory
        if memory is not None:
            labels = held_labels(entry, held)
            used_bytes = None if containers is None else used_together(members)
            yield from _Amounts(memory.guaranteed_bytes, memory.most_bytes, used_bytes).told("claim", labels)
            yield from _of_containers(labels, members)


def held_labels(entry: Entry, held: HeldDevice) -> dict[str, str]:
    """Whose device it is, which, and on which GPU."""
    return {
        "claim_namespace": entry.namespace,
        "claim": entry.name,
        "device": held.device,
        "share_id": held.share_id or "",
        "uuid": held.uuid,
        "pci_bus_id": held.pci,
    }


def used_together(containers: Iterable[ContainerMemory]) -> int | None:
    """What containers use together; None if one of them is not known."""
    amounts = [one.used_bytes for one in containers]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _limited(entries: Iterable[Entry], era: Era) -> Iterator[tuple[Entry, HeldDevice]]:
    """The devices with limits, of claims that are prepared and known by name."""
    for entry in entries:
        if standing(entry, era).is_prepared:
            for held in entry.devices:
                if held.memory is not None:
                    yield entry, held


def _of_containers(labels: Mapping[str, str], members: Iterable[ContainerMemory]) -> Iterator[Reading]:
    """One for each name: a container that restarts may be there twice for a moment."""
    named: defaultdict[tuple[str, str], list[ContainerMemory]] = defaultdict(list)
    for one in members:
        named[one.pod, one.container].append(one)
    for (pod, container), same in sorted(named.items()):
        amounts = _Amounts(
            sum(one.soft_bytes for one in same),
            sum(one.hard_bytes for one in same),
            used_together(same),
        )
        yield from amounts.told("container", {**labels, "claim_pod": pod, "claim_container": container})
