"""Puts what claims are held to on GPUs beside what their containers use, for the metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from driver.process.metrics import ClaimMemoryUse, ContainerMemoryUse, GpuMemoryUse, MemoryFigures
from kubeletplugin.journal.entry import Entry, HeldDevice, MemoryRecord
from kubeletplugin.journal.identity import Era
from kubeletplugin.kinds.kind import HeldKinds
from kubeletplugin.wire.container_memory import ContainerMemory

Containers = tuple[ContainerMemory, ...]


def memory_uses(
    entries: Iterable[Entry], era: Era, kinds: HeldKinds, look: Callable[[], Containers | None]
) -> MemoryFigures:
    """The memory that prepared claims of this era hold on GPUs, and what of it is used.

    ``look()`` gives what live containers have, None while nobody knows what is used; it is not asked where
    nobody is held to anything. What containers of other claims have is left out:
    their claims are being let go.
    """
    shares = list(_held(entries, era))
    if all(held.memory is None for _, held in shares):
        return MemoryFigures()
    containers = look()
    of_device: defaultdict[tuple[str, str], list[ContainerMemory]] = defaultdict(list)
    for one in containers or ():
        of_device[one.claim_uid, one.cdi_device].append(one)
    claims: list[ClaimMemoryUse] = []
    parts: list[ContainerMemoryUse] = []
    gpus: dict[str, _Gpu] = {}
    for entry, held in shares:
        members = of_device[entry.uid, held.cdi_device]
        used_bytes = None if containers is None else used_together(members)
        if held.memory is not None:
            claims.append(_of_claim(entry, held, held.memory, used_bytes))
            parts += _of_containers(entry, held, members)
        if _is_on_whole_gpu(kinds, held):
            gpus.setdefault(held.pci, _Gpu(held.uuid)).add(held, used_bytes)
    return MemoryFigures(
        tuple(claims), tuple(parts), tuple(gpus[pci].told(pci) for pci in sorted(gpus) if gpus[pci].holds)
    )


def used_together(containers: Iterable[ContainerMemory]) -> int | None:
    """What containers use together; None where it is not known of one of them."""
    amounts = [one.used_bytes for one in containers]
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


@dataclass(slots=True)
class _Gpu:
    """The shares of one GPU, as they are added; ``holds`` is whether the NVIDIA driver holds one of them."""

    uuid: str
    holds: bool = False
    allocated: list[int | None] = field(default_factory=list)
    used: list[int | None] = field(default_factory=list)

    def add(self, held: HeldDevice, used_bytes: int | None) -> None:
        memory, share = held.memory, held.share
        if memory is not None:
            self.holds = True
            self.allocated.append(memory.guaranteed_bytes)
            self.used.append(used_bytes)
        elif share is not None:
            self.allocated.append(share.memory_bytes or None)
            self.used.append(None)

    def told(self, pci: str) -> GpuMemoryUse:
        return GpuMemoryUse(self.uuid, pci, _sum(self.allocated), _sum(self.used))


def _sum(amounts: list[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _held(entries: Iterable[Entry], era: Era) -> Iterator[tuple[Entry, HeldDevice]]:
    """The shared devices, and those with limits, of claims that are prepared and known by name."""
    for entry in entries:
        if entry.state == "prepared" and entry.is_live(era) and not entry.rebuilt:
            for held in entry.devices:
                if held.share is not None or held.memory is not None:
                    yield entry, held


def _is_on_whole_gpu(kinds: HeldKinds, held: HeldDevice) -> bool:
    return bool(held.pci) and all(region.span is None for region in kinds.of(held).occupies(held))


def _of_claim(entry: Entry, held: HeldDevice, memory: MemoryRecord, used_bytes: int | None) -> ClaimMemoryUse:
    return ClaimMemoryUse(
        claim_namespace=entry.namespace,
        claim=entry.name,
        device=held.device,
        share_id=held.share_id or "",
        uuid=held.uuid,
        pci_bus_id=held.pci,
        guaranteed_bytes=memory.guaranteed_bytes,
        limit_bytes=memory.most_bytes,
        used_bytes=used_bytes,
    )


def _of_containers(
    entry: Entry, held: HeldDevice, members: Iterable[ContainerMemory]
) -> Iterator[ContainerMemoryUse]:
    """One for each name: a container that restarts may be there twice for a moment."""
    named: defaultdict[tuple[str, str], list[ContainerMemory]] = defaultdict(list)
    for one in members:
        named[one.pod, one.container].append(one)
    for (pod, container), same in sorted(named.items()):
        yield ContainerMemoryUse(
            claim_namespace=entry.namespace,
            claim=entry.name,
            claim_pod=pod,
            claim_container=container,
            device=held.device,
            share_id=held.share_id or "",
            uuid=held.uuid,
            pci_bus_id=held.pci,
            guaranteed_bytes=sum(one.soft_bytes for one in same),
            limit_bytes=sum(one.hard_bytes for one in same),
            used_bytes=used_together(same),
        )
