"""Metrics: the memory limits of claims, and what their containers use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from driver.process.metrics.table import Reading
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, standing
from kubeletplugin.kubelet.wire.containers import ContainerMemory

Containers = tuple[ContainerMemory, ...]

MEMORY_SERIES = tuple(
    f"gpu_dra_{holder}_memory_{amount}_bytes"
    for holder in ("claim", "container")
    for amount in ("limit", "used")
)


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
        members, labels = of_device[entry.uid, held.cdi_device], held_labels(entry, held)
        used_bytes = None if containers is None else used_together(members)
        yield from _readings("claim", labels, held.memory_limit_bytes or 0, used_bytes)
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
                if held.memory_limit_bytes is not None:
                    yield entry, held


def _readings(
    holder: str, labels: Mapping[str, str], limit_bytes: int, used_bytes: int | None
) -> Iterator[Reading]:
    yield Reading(f"gpu_dra_{holder}_memory_limit_bytes", labels, limit_bytes)
    if used_bytes is not None:
        yield Reading(f"gpu_dra_{holder}_memory_used_bytes", labels, used_bytes)


def _of_containers(labels: Mapping[str, str], members: Iterable[ContainerMemory]) -> Iterator[Reading]:
    """The readings of containers, added up by name: a restarting container may exist twice for a moment."""
    named: defaultdict[tuple[str, str], list[ContainerMemory]] = defaultdict(list)
    for one in members:
        named[one.pod, one.container].append(one)
    for (pod, container), same in sorted(named.items()):
        whose = {**labels, "claim_pod": pod, "claim_container": container}
        yield from _readings("container", whose, sum(one.hard_bytes for one in same), used_together(same))
