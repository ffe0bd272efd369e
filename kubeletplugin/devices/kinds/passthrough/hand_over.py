"""Takes the GPUs of a device from the NVIDIA driver for vfio, and gives them back.

The driver does not let go of a GPU while a process has it open: this process, the controllers of the node,
nvidia-persistenced, and programs that compute. The first two close NVML for the time of the change, and
persistence mode is turned off. For all other processes the claim has to wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from driver.errors import NvmlError
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER, PciFunction
from driver.hardware.inventory import Discovery
from driver.hardware.persistence import Persistence
from driver.nvml.api import GpuLost
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import HeldDevice, Record
from kubeletplugin.devices.kinds.kind import Note
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.devices.vfio.record import FUNCTIONS
from kubeletplugin.kubelet.wire.controllers import Controllers, NotLetGo


@dataclass(frozen=True, slots=True)
class PassthroughRecord:
    """What has to be remembered of a device."""

    # The number of its IOMMU group.
    group: int
    # The PCI device ids of its GPUs, in the order of the device's name. They tell models of boards apart
    # while no driver is bound that can read a UUID.
    device_ids: tuple[int, ...] = ()
    # Whether a container gets it by IOMMUFD if the kernel has that.
    iommufd: bool = False
    # Whether a container gets the node of the IOMMU as well.
    api_device: bool = True
    # The GPUs whose persistence mode has to be turned on again.
    persistent: tuple[str, ...] = ()
    # The record of the binding (devices.vfio.record), empty while nothing is changed.
    functions: tuple[Mapping[str, Any], ...] = ()

    @property
    def is_begun(self) -> bool:
        """Whether there may be something to undo."""
        return bool(self.persistent or self.functions)

    @property
    def unmade(self) -> PassthroughRecord:
        """The record when nothing is made."""
        return replace(self, persistent=(), functions=())


def record_of(held: HeldDevice) -> PassthroughRecord:
    """The record of a device."""
    return read(held.record)


def read(record: Record) -> PassthroughRecord:
    """Read a record from the journal's JSON."""
    return PassthroughRecord(
        int(record["group"]),
        tuple(int(one) for one in record.get("device_ids", ())),
        bool(record.get("iommufd", False)),
        bool(record.get("api_device", True)),
        tuple(str(one) for one in record.get("persistent", ())),
        tuple(record.get(FUNCTIONS, ())),
    )


def written(record: PassthroughRecord) -> Record:
    """The record as the journal's JSON."""
    plain: dict[str, Any] = {
        "group": record.group,
        "device_ids": list(record.device_ids),
        "iommufd": record.iommufd,
        "api_device": record.api_device,
    }
    if record.persistent:
        plain["persistent"] = list(record.persistent)
    if record.functions:
        plain[FUNCTIONS] = [dict(one) for one in record.functions]
    return plain


_log = get_logger("passthrough")

_BACK_SECONDS = 5.0
"""How long to wait for controllers when a GPU comes back; one that does not answer prevents nothing then."""


class HandOver:
    """Takes and gives back the functions of devices. Callers hold the locks of the claim and of its GPUs."""

    def __init__(self, discovery: Discovery, controllers: Controllers, binder: GroupBinder) -> None:
        self._discovery = discovery
        self._persistence = Persistence(discovery)
        self._controllers = controllers
        self._binder = binder

    def take(self, gpus: Sequence[PciFunction], record: PassthroughRecord, note: Note) -> PassthroughRecord:
        """Bind the group of these GPUs to vfio; returns the record.

        Raises NotLetGo, NvmlError, and the errors of the binding (kubeletplugin.devices.vfio.failures).
        """
        addresses = [gpu.pci for gpu in gpus]
        # A GPU that shows no driver is not skipped here. The NVIDIA driver may still be letting go of it,
        # since the kernel removes the link to the driver first.
        if all(gpu.on_vfio for gpu in gpus):
            return read(self._binder.bind(addresses[0], addresses, written(record), note))
        # Before the NVML sessions close: persistence mode is changed by NVML.
        record = self._without_persistence(addresses, record, note)
        with self._controllers.letting_go(), self._discovery.let_go():
            return read(self._binder.bind(addresses[0], addresses, written(record), note))

    def give_back(self, record: PassthroughRecord, note: Note) -> PassthroughRecord:
        """Restore the functions, and the persistence mode of the GPUs; returns the record.

        Raises NvmlError, and the errors of the binding.
        """
        with self._restarting_sessions(record):
            record = read(self._binder.restore(written(record), note))
        for pci in record.persistent:
            # None means that NVML has no such GPU, so there is no mode to restore.
            if self._has_persistence(PciAddress.parse(pci)) is False:
                self._persistence.set(PciAddress.parse(pci), on=True)
        record = replace(record, persistent=())
        note("given back", written(record))
        return record

    def _without_persistence(
        self, gpus: Sequence[PciAddress], record: PassthroughRecord, note: Note
    ) -> PassthroughRecord:
        """Turn persistence mode off, by which the driver or nvidia-persistenced keeps the GPUs open."""
        on = [pci for pci in gpus if self._has_persistence(pci)]
        if not on:
            return record
        # Those of an earlier try stay in the list: their mode reads as off by now.
        kept = tuple(dict.fromkeys((*record.persistent, *map(str, on))))
        record = replace(record, persistent=kept)
        note("persistence", written(record))
        for pci in on:
            self._persistence.set(pci, on=False)
        return record

    def _has_persistence(self, pci: PciAddress) -> bool | None:
        """Whether the mode is on; None if NVML has no such GPU, or the GPU has no such mode."""
        try:
            return self._persistence.is_on(pci)
        # Its former driver may not have it back yet.
        except GpuLost as error:
            _log.info("cannot read persistence mode", gpu=str(pci), error=str(error))
            return None

    def _restarting_sessions(self, record: PassthroughRecord) -> AbstractContextManager[None]:
        if any(one.get("driver") == NVIDIA_KERNEL_DRIVER for one in record.functions):
            return restarting_sessions(self._discovery, self._controllers)
        return nullcontext()


@contextmanager
def restarting_sessions(discovery: Discovery, controllers: Controllers) -> Iterator[None]:
    """Close the NVML sessions for the block, so that those opened after it see a GPU that came back in it.

    A session that cannot be closed is only logged: it does not prevent the change, it sees the GPU later.
    """
    # NVML lists the GPUs that there are at nvmlInit; a session that is open does not see another one.
    with ExitStack() as away:
        for sessions in (controllers.letting_go(_BACK_SECONDS), discovery.let_go()):
            try:
                away.enter_context(sessions)
            except (NotLetGo, NvmlError) as error:
                _log.warning("a GPU that comes back will be seen late", error=error.logged)
        yield
