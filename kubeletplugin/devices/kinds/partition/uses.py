"""Finds in the journal which partitions claims use, for the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from driver.process.metrics.table import Reading
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, standing
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.devices.kinds.partition.record import partition_name, record_of

PARTITION_INFO = "gpu_dra_partition_info"


def partition_uses(entries: Iterable[Entry], era: Era) -> Iterator[Reading]:
    """Each partition that exists and is a claim's, static ones included, once.

    Admin access is left out: the partition is another claim's. So is what an entry of an earlier era
    says, and a rebuilt entry, which does not know what it has.
    """
    for entry in entries:
        now = standing(entry, era)
        if not now.is_live or now.rebuilt:
            continue
        for held in entry.devices:
            use = None if held.admin_access else _use(entry, held)
            if use is not None:
                yield use


def _use(entry: Entry, held: HeldDevice) -> Reading | None:
    record = None if partition_name(held) is None else record_of(held)
    if record is None or record.gpu_instance_id is None or record.compute_instance_id is None:
        return None
    labels = {
        "claim_namespace": entry.namespace,
        "claim": entry.name,
        "device": held.device,
        "profile": record.profile,
        "uuid": record.uuid,
        "parent_uuid": held.uuid,
        "pci_bus_id": held.pci,
        "gpu_instance_id": str(record.gpu_instance_id),
        "compute_instance_id": str(record.compute_instance_id),
    }
    return Reading(PARTITION_INFO, labels, 1)
