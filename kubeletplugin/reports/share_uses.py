"""Finds in the journal which shares claims have, for the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from driver.process.metrics.table import Reading
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, ShareRecord
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.devices.kinds.kind import HeldKinds

SHARE_INFO = "gpu_dra_share_info"


def share_uses(entries: Iterable[Entry], era: Era, kinds: HeldKinds) -> Iterator[Reading]:
    """Each share that a claim has, and each device that a claim shares among its own pods.

    What an entry of an earlier boot says is left out; a rebuilt entry does not know what it has.
    """
    for entry in entries:
        if kinds.standing(entry, era).is_prepared:
            for held in entry.devices:
                if held.share is not None:
                    yield _use(entry, held, held.share, kinds.of(held).cuda_uuid(held))


def _use(entry: Entry, held: HeldDevice, share: ShareRecord, cuda_uuid: str) -> Reading:
    mps = share.strategy == "MPS"
    labels = {
        "claim_namespace": entry.namespace,
        "claim": entry.name,
        "device": held.device,
        "share_id": held.share_id or "",
        "strategy": "mps" if mps else "time-slicing",
        "uuid": cuda_uuid,
        "pci_bus_id": held.pci,
        "shares": _told(share.shares),
        "memory_bytes": _told(share.memory_bytes),
        "active_thread_percentage": _told(share.active_thread_percentage if mps else 0),
        "pinned_memory_mib": _told(share.pinned_memory_mib),
    }
    return Reading(SHARE_INFO, labels, 1)


def _told(amount: int) -> str:
    return str(amount) if amount else ""
