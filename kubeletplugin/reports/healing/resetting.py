"""The reset itself, of GPUs that nobody uses any more; any step can be the last before a crash.

What is in the way of a reset is what is in the way of passthrough: the NVML sessions of this process and of
the controllers, and persistence mode. The mode alone outlives this process, so it is written down before it
goes off.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from driver.errors import ClaimBlocked, DriverError, NvmlError
from driver.hardware.persistence import Persistence
from driver.process.log import get_logger
from kubeletplugin.devices.vfio.users import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from driver.hardware.inventory import Discovery
    from driver.nvml.pci_address import PciAddress
    from kubeletplugin.devices.vfio.users import User
    from kubeletplugin.kubelet.wire.controllers import Controllers
    from kubeletplugin.reports.healing.gpu_reset import GpuReset
    from kubeletplugin.reports.healing.records import HealRecords

_log = get_logger("heal")


class Resetting:
    """Resets GPUs and has them as they were. Callers hold the locks of the GPUs.

    ``using(gpus)`` are the processes that have any of them open, but for this one.
    """

    def __init__(
        self,
        sessions: tuple[Discovery, Controllers],
        gpu_reset: GpuReset,
        records: HealRecords,
        using: Callable[[Sequence[PciAddress]], Sequence[User]],
        step: Callable[[str], None],
    ) -> None:
        """``sessions`` are who has NVML open on this node; ``step(name)`` follows the steps."""
        self._discovery, self._controllers = sessions
        self._persistence = Persistence(self._discovery)
        self._gpu_reset = gpu_reset
        self._records = records
        self._using = using
        self._step = step

    def run(self, gpus: Sequence[PciAddress]) -> None:
        """Reset them together; raises DriverError, and then they are as they were, as far as that goes."""
        try:
            self._without_persistence(gpus)
            self._reset(gpus)
        except DriverError:
            self._put_back_if_possible(gpus)
            raise
        self.put_back(gpus)
        for pci in gpus:
            self._check(pci)

    def put_back(self, gpus: Sequence[PciAddress]) -> None:
        """Have persistence mode on where it was on before; raises NvmlError, StorageError."""
        for pci in gpus:
            record = self._records.get(pci)
            if record.persistent:
                self._persistence.set(pci, on=True)
                self._step("persistence on")
                self._records.put(replace(record, persistent=False))
                self._step("persistence put back")

    def _without_persistence(self, gpus: Sequence[PciAddress]) -> None:
        """Have nvidia-persistenced, or the kernel driver itself, keep none of the GPUs initialised."""
        for pci in gpus:
            if self._is_persistent(pci):
                self._records.put(replace(self._records.get(pci), persistent=True))
                self._step("persistence noted")
                self._persistence.set(pci, on=False)
                self._step("persistence off")

    def _is_persistent(self, pci: PciAddress) -> bool:
        try:
            return bool(self._persistence.is_on(pci))
        except NvmlError as error:  # it is ill, so that it may not answer
            _log.warning("persistence mode is not known", gpu=str(pci), error=error.logged)
            return False

    def _reset(self, gpus: Sequence[PciAddress]) -> None:
        """Reset them while no session of NVML is open on this node, and write down when."""
        with self._controllers.letting_go(), self._own_session_ended():
            self._step("let go")
            using = self._using(gpus)
            if using:
                raise ClaimBlocked(
                    f"not reset, since it is used by {named(using)}", "end them, then try again"
                )
            self._gpu_reset.reset(gpus)
            self._step("reset")
            now = time.time_ns() // 1_000_000
            for pci in gpus:
                self._records.put(replace(self._records.get(pci), healed_unix_milliseconds=now))
                self._step("healed noted")

    @contextmanager
    def _own_session_ended(self) -> Iterator[None]:
        """Raises ClaimBlocked where a call into a GPU hangs: what hangs has the GPU open."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._discovery.let_go())
            except NvmlError as error:
                raise ClaimBlocked(
                    f"not reset: {error.what}",
                    "delete the plugin's pod on the node and ask again; where it stays, restart the machine",
                ) from error
            yield

    def _put_back_if_possible(self, gpus: Sequence[PciAddress]) -> None:
        """As ``put_back``; what cannot be put back now is put back later."""
        try:
            self.put_back(gpus)
        except DriverError as error:
            _log.warning("persistence mode not put back yet", error=error.logged)

    def _check(self, pci: PciAddress) -> None:
        """Raise ClaimBlocked unless NVML has the GPU again."""
        try:
            self._discovery.identity(pci)
        except NvmlError as error:
            raise ClaimBlocked(
                f"GPU {pci} was reset and does not answer: {error.what}", "restart the machine"
            ) from error
