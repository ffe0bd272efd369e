"""Connects the metrics of the plugin with the parts that they tell of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from driver.process.fresh_look import FreshLook
from driver.process.metrics.table import NVIDIA_DRIVER, Reading
from kubeletplugin.devices.kinds.partition.uses import PARTITION_INFO, partition_uses
from kubeletplugin.reports.memory_uses import MEMORY_SERIES, memory_uses
from kubeletplugin.reports.share_uses import SHARE_INFO, share_uses
from kubeletplugin.reports.use.device_series import USE_SERIES, UseSeries
from kubeletplugin.reports.use.node_use import Listed, NodeLook, NodeUse
from kubeletplugin.reports.use.process_containers import ProcessContainers

if TYPE_CHECKING:
    from driver.hardware.inventory import Discovery
    from driver.process.metrics.registry import Metrics
    from kubeletplugin.assembly import Parts
    from kubeletplugin.claims.journal.entry import Entry
    from kubeletplugin.claims.journal.identity import Era
    from kubeletplugin.kubelet.wire.container_memory import ContainerMemory

_PROC = Path("/proc")
_UNKNOWN = NodeUse()


class Numbers:
    """What the plugin shows of claims and GPUs; ``look`` has to run in a thread of its own."""

    def __init__(
        self,
        discovery: Discovery,
        parts: Parts,
        era: Callable[[], Era],
        published_memory: Callable[[str], int | None],
        listed: Callable[[], Listed],
        host_root: Path | None,
        proc: Path = _PROC,
    ) -> None:
        """``listed()`` are the containers that the kubelet lists, by CDI device; it raises DriverError.

        Without ``host_root`` the host's files are those of its first process.
        """
        self._parts, self._era = parts, era
        processes = ProcessContainers(proc, host_root or proc / "1/root")
        self._node = NodeLook(
            discovery, lambda: parts.health.gpus, self._live, parts.memory.used, listed, processes
        )
        self.look: FreshLook[NodeUse] = FreshLook("use of GPUs", self._node.look)
        self._series = UseSeries(parts.kinds, published_memory)

    def containers(self) -> tuple[ContainerMemory, ...] | None:
        """What live containers with limits have and use; None where nobody could tell in time."""
        found = self.look.now()
        return None if found is None else found.memory

    def show(self, metrics: Metrics, node_name: str) -> None:
        """Show all of it from now on."""
        entries, kinds = self._parts.journal.held, self._parts.kinds
        metrics.show(lambda: partition_uses(entries(), self._era()), PARTITION_INFO)
        metrics.show(lambda: share_uses(entries(), self._era(), kinds), SHARE_INFO)
        metrics.show(lambda: memory_uses(entries(), self._era(), self.containers), *MEMORY_SERIES)
        metrics.show(self._used, *USE_SERIES)
        metrics.show(lambda: self._by_type(node_name), "nvidia_dra_prepared_devices")
        metrics.show_number("gpu_dra_memory_limits_not_held", lambda: len(self._parts.memory.faults()))

    def _used(self) -> Iterator[Reading]:
        use = self.look.now() or _UNKNOWN
        return self._series.readings(self._live(), self._parts.health.gpus, use, self._node.listed)

    def _live(self) -> list[Entry]:
        """The prepared claims that are known by name and whose devices are there."""
        era, kinds = self._era(), self._parts.kinds
        return [
            entry
            for entry in self._parts.journal.held()
            if entry.is_named and kinds.standing(entry, era).is_prepared
        ]

    def _by_type(self, node_name: str) -> Iterator[Reading]:
        kinds = self._parts.kinds
        types = Counter(
            "unknown" if not kinds.knows(held) else kinds.of(held).offered.attribute_type
            for entry in self._live()
            for held in entry.devices
        )
        for device_type, count in sorted(types.items()):
            labels = {"node": node_name, "driver": NVIDIA_DRIVER, "device_type": device_type}
            yield Reading("nvidia_dra_prepared_devices", labels, count)
