"""Tells what each live container uses of the memory that it may have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from driver.errors import NvmlError
from driver.process.log import get_logger
from kubeletplugin.kubelet.wire.container_memory import ContainerMemory
from kubeletplugin.sharing.memory.ledger import Part

if TYPE_CHECKING:
    from driver.nvml.memory_limits import MemoryLimits
    from kubeletplugin.devices.host.cgroups import Cgroup
    from kubeletplugin.sharing.memory.one_gpu import MemoryPorts

_log = get_logger("memory")


class MemoryUses:
    """Looks whenever it is asked. Takes no lock of a GPU, so no container waits for it."""

    def __init__(self, ports: MemoryPorts) -> None:
        self._ports = ports

    def now(self) -> tuple[ContainerMemory, ...]:
        """What containers have and use, sorted by claim, device and group; raises StorageError."""
        gpus = sorted({pci for _, pci in self._ports.ledger.places()})
        return tuple(one for pci in gpus for one in self._on_gpu(pci))

    def _on_gpu(self, pci: str) -> Iterable[ContainerMemory]:
        parts = [part for part in self._ports.ledger.on_gpu(pci) if self._ports.cgroups.is_there(part.cgroup)]
        allowed = self._ports.allowances.on_gpu(pci, lambda: 0, ())
        try:
            told = self._ports.limits.glance(pci, (part.cgroup.path for part in parts))
        except NvmlError as error:
            _log.warning("used memory is not known", gpu=pci, error=error.logged)
            told = {}
        left = {part.cgroup: _used(told.get(part.cgroup.path)) for part in parts}
        counts = {group: sum(part.cgroup == group for part in parts) for group in left}
        for part in sorted(parts, key=lambda one: (*one.key[:2], one.cgroup.path)):
            one = allowed.get((part.claim_uid, part.cdi_device))
            counts[part.cgroup] -= 1
            used_bytes = _fill(left, part, last=not counts[part.cgroup])
            yield ContainerMemory(
                part.claim_uid,
                part.cdi_device,
                one.name if one is not None else "",
                pci,
                one.uuid if one is not None else "",
                part.name.namespace,
                part.name.pod,
                part.name.container,
                part.portion.soft_bytes,
                part.portion.hard_bytes,
                used_bytes,
            )


def _used(told: MemoryLimits | None) -> int | None:
    return None if told is None else told.used_bytes


def _fill(left: dict[Cgroup, int | None], part: Part, *, last: bool) -> int | None:
    """What of the use of a group counts for one of its parts: the first are filled before the next."""
    rest = left[part.cgroup]
    if rest is None:
        return None
    used_bytes = rest if last else min(rest, part.portion.hard_bytes)
    left[part.cgroup] = rest - used_bytes
    return used_bytes
