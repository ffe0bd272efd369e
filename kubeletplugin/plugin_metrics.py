"""The plugin's metrics about claims and GPUs, connected to the parts that they describe."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from driver.hardware.inventory import Discovery
from driver.process.fresh_reading import FreshReading
from driver.process.metrics.registry import Metrics
from driver.process.metrics.table import NVIDIA_DRIVER, Reading
from kubeletplugin.assembly import Parts
from kubeletplugin.claims.journal.entry import Entry, HeldDevice, ShareRecord, standing
from kubeletplugin.devices.kinds.partition.record import partition_name, record_of
from kubeletplugin.devices.kinds.registry import HELD_KINDS
from kubeletplugin.kubelet.wire.containers import ContainerMemory
from kubeletplugin.reports.memory_watch import MEMORY_SERIES, memory_uses
from kubeletplugin.reports.published import PublishedDevices
from kubeletplugin.reports.use.device_series import USE_SERIES, UseSeries
from kubeletplugin.reports.use.node_use import Listed, NodeUse, ProcessContainers, UseReader

_PROC = Path("/proc")
_UNKNOWN = NodeUse()

_PARTITION_INFO = "gpu_dra_partition_info"

_SHARE_INFO = "gpu_dra_share_info"

_IMEX_READY = "gpu_dra_imex_ready"


class PluginMetrics:
    """The metrics about claims and GPUs; ``use.run`` needs a thread of its own."""

    def __init__(
        self,
        discovery: Discovery,
        parts: Parts,
        published: PublishedDevices,
        listed: Callable[[], Listed],
        host_root: Path | None,
        proc: Path = _PROC,
    ) -> None:
        """``listed()`` returns the containers that the kubelet lists, by CDI device; it raises DriverError.

        Without ``host_root`` the host's files are read by way of its process 1.
        """
        self._parts, self._generation = parts, parts.journal.generation
        processes = ProcessContainers(proc, host_root or proc / "1/root")
        self._reader = UseReader(
            discovery, lambda: parts.health.gpus, self._live, parts.memory.used, listed, processes
        )
        self.use: FreshReading[NodeUse] = FreshReading("use of GPUs", self._reader.read)
        self._series = UseSeries(published)

    def containers(self) -> tuple[ContainerMemory, ...] | None:
        """The memory of live containers with limits; None if it could not be read in time."""
        found = self.use.now()
        return None if found is None else found.memory

    def show(self, metrics: Metrics, node_name: str) -> None:
        """Register all metrics."""
        entries = self._parts.journal.held
        metrics.show(lambda: partition_uses(entries(), self._generation()), _PARTITION_INFO)
        metrics.show(lambda: share_uses(entries(), self._generation()), _SHARE_INFO)
        metrics.show(lambda: memory_uses(entries(), self._generation(), self.containers), *MEMORY_SERIES)
        metrics.show(self._used, *USE_SERIES)
        # Named as by NVIDIA's own driver, so that dashboards for that one work.
        metrics.show(lambda: self._by_type(node_name), "nvidia_dra_prepared_devices")
        metrics.show(self._imex, _IMEX_READY)
        metrics.show_number("gpu_dra_memory_limits_not_held", lambda: len(self._parts.memory.faults()))

    def _used(self) -> Iterator[Reading]:
        use = self.use.now() or _UNKNOWN
        return self._series.readings(self._live(), self._parts.health.gpus, use, self._reader.listed)

    def _imex(self) -> Iterator[Reading]:
        """Nothing until a claim for a channel has asked."""
        if (ready := self._parts.common.hardware.imex.was_ready) is not None:
            yield Reading(_IMEX_READY, {}, float(ready))

    def _live(self) -> list[Entry]:
        """The prepared claims with a known name whose devices exist."""
        journal = self._parts.journal
        return [entry for entry in journal.held() if entry.is_named and journal.standing(entry).is_prepared]

    def _by_type(self, node_name: str) -> Iterator[Reading]:
        types = Counter(
            # A newer version may have prepared devices of other kinds.
            "unknown" if held.offered is None else held.offered.attribute_type
            for entry in self._live()
            for held in entry.devices
        )
        for device_type, count in sorted(types.items()):
            labels = {"node": node_name, "driver": NVIDIA_DRIVER, "device_type": device_type}
            yield Reading("nvidia_dra_prepared_devices", labels, count)


def partition_uses(entries: Iterable[Entry], generation: str) -> Iterator[Reading]:
    """Each existing partition of a claim, static ones included, once.

    Left out are devices with admin access, whose partition belongs to another claim, entries of an earlier
    load of the driver, and lost entries, which lack the record of their devices.
    """
    for entry in entries:
        now = standing(entry, generation)
        if not now.is_live or now.state == "lost":
            continue
        for held in entry.devices:
            use = None if held.admin_access else _partition_use(entry, held)
            if use is not None:
                yield use


def _partition_use(entry: Entry, held: HeldDevice) -> Reading | None:
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
    return Reading(_PARTITION_INFO, labels, 1)


def share_uses(entries: Iterable[Entry], generation: str) -> Iterator[Reading]:
    """Each share of a claim, and each device that a claim shares among its own pods.

    Lost entries are left out, since they lack the record of their shares.
    """
    for entry in entries:
        if standing(entry, generation).is_prepared:
            for held in entry.devices:
                if held.share is not None:
                    yield _share_use(entry, held, held.share, HELD_KINDS.of(held).cuda_uuid(held))


def _share_use(entry: Entry, held: HeldDevice, share: ShareRecord, cuda_uuid: str) -> Reading:
    mps = share.strategy == "MPS"
    labels = {
        "claim_namespace": entry.namespace,
        "claim": entry.name,
        "device": held.device,
        "share_id": held.share_id or "",
        "strategy": "mps" if mps else "time-slicing",
        "uuid": cuda_uuid,
        "pci_bus_id": held.pci,
        "shares": str(share.shares or ""),
        "memory_bytes": str(share.memory_bytes or ""),
        "active_thread_percentage": str((mps and share.active_thread_percentage) or ""),
        "pinned_memory_mib": str(share.pinned_memory_mib or ""),
    }
    return Reading(_SHARE_INFO, labels, 1)
