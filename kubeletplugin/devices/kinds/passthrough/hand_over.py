"""Takes the GPUs of a device from the NVIDIA driver for vfio, and gives them back.

The driver does not let go of a GPU while a process has it open: this process, the controllers of the node,
nvidia-persistenced, and programs that compute. The first two close NVML for the moment, persistence mode is
turned off, and for everything else the claim waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace

from driver.errors import NvmlError
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER, PciFunction
from driver.hardware.inventory import Discovery
from driver.hardware.persistence import Persistence
from driver.nvml.api import GpuLost
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.devices.kinds.kind import Note
from kubeletplugin.devices.kinds.passthrough.record import PassthroughRecord, read, written
from kubeletplugin.devices.vfio.binder import GroupBinder
from kubeletplugin.kubelet.wire.controllers import Controllers, NotLetGo

_log = get_logger("passthrough")

_BACK_SECONDS = 5.0
"""How long controllers are waited for when a GPU comes back, which none of them is in the way of."""


class HandOver:
    """Takes and gives back the functions of devices. Callers hold the locks of the claim and of its GPUs."""

    def __init__(self, discovery: Discovery, controllers: Controllers, binder: GroupBinder) -> None:
        self._discovery = discovery
        self._persistence = Persistence(discovery)
        self._controllers = controllers
        self._binder = binder

    def take(self, gpus: Sequence[PciFunction], record: PassthroughRecord, note: Note) -> PassthroughRecord:
        """Bind the group of these GPUs to vfio; returns the record.

        A GPU without a driver may be one that the NVIDIA driver was told to let go of and still has: the
        kernel takes the name away first. Raises NotLetGo, NvmlError, and what the binding raises
        (kubeletplugin.devices.vfio.failures).
        """
        addresses = [gpu.pci for gpu in gpus]
        if all(gpu.on_vfio for gpu in gpus):
            return read(self._binder.bind(addresses[0], addresses, written(record), note))
        record = self._without_persistence(addresses, record, note)
        with self._controllers.letting_go(), self._discovery.let_go():
            return read(self._binder.bind(addresses[0], addresses, written(record), note))

    def give_back(self, record: PassthroughRecord, note: Note) -> PassthroughRecord:
        """Restore the functions, and the persistence mode of the GPUs; returns the record.

        Raises NvmlError, and what the binding raises.
        """
        with self._others_see_it_come(record):
            record = read(self._binder.restore(written(record), note))
        for pci in record.persistent:
            if self._has_persistence(PciAddress.parse(pci)) is False:
                self._persistence.set(PciAddress.parse(pci), on=True)
        record = replace(record, persistent=())
        note("given back", written(record))
        return record

    def _without_persistence(
        self, gpus: Sequence[PciAddress], record: PassthroughRecord, note: Note
    ) -> PassthroughRecord:
        """Keep nvidia-persistenced, or the kernel driver itself, from keeping the GPUs initialised."""
        on = [pci for pci in gpus if self._has_persistence(pci)]
        if not on:
            return record
        kept = tuple(dict.fromkeys((*record.persistent, *map(str, on))))
        record = replace(record, persistent=kept)
        note("persistence", written(record))
        for pci in on:
            self._persistence.set(pci, on=False)
        return record

    def _has_persistence(self, pci: PciAddress) -> bool | None:
        """Whether the mode is on; None where NVML has no such GPU (any more), or the GPU no such mode."""
        try:
            return self._persistence.is_on(pci)
        except GpuLost as error:
            _log.info("persistence mode is not known", gpu=str(pci), error=str(error))
            return None

    def _others_see_it_come(self, record: PassthroughRecord) -> AbstractContextManager[None]:
        if any(one.get("driver") == NVIDIA_KERNEL_DRIVER for one in record.functions):
            return sessions_begin_anew(self._discovery, self._controllers)
        return nullcontext()


@contextmanager
def sessions_begin_anew(discovery: Discovery, controllers: Controllers) -> Iterator[None]:
    """Have the sessions of NVML begun after the block, so that they know a GPU that came back in it.

    None of them is in the way of that: one that does not end only learns of the GPU later.
    """
    with ExitStack() as away:
        for sessions in (controllers.letting_go(_BACK_SECONDS), discovery.let_go()):
            try:
                away.enter_context(sessions)
            except (NotLetGo, NvmlError) as error:
                _log.warning("a GPU that comes back is seen late", error=error.logged)
        yield
