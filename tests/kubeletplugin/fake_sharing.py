"""Stand-ins for the MPS supervisor and for nvidia-smi that hold state, without any process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from driver.errors import DriverError
from driver.model import PciAddress
from driver.nvml.api import Code, NvmlCallFailed
from driver.nvml.fake_machine import FakeMachine
from kubeletplugin.driver_files import DriverRoot
from kubeletplugin.mps_client import MpsClient, MpsDaemon
from kubeletplugin.time_slices import Interval, TimeSlices

INTERVALS: tuple[Interval, ...] = ("Default", "Short", "Medium", "Long")


class FakeMps(MpsClient):
    """A supervisor whose daemons are values; it outlives the plugin, and a reboot ends its daemons.

    ``failures`` are raised by the next calls instead of anything being done; ``on_ensure`` is called once a
    daemon serves, before that is answered.
    """

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))
        self.running: dict[str, MpsDaemon] = {}
        self.started = 0
        self.ensured = 0
        self.failures: list[DriverError] = []
        self.on_ensure: Callable[[MpsDaemon], None] = lambda _: None

    def ensure(self, daemon: MpsDaemon) -> None:
        """Have it run."""
        self.ensured += 1
        if self.failures:
            raise self.failures.pop(0)
        before = self.running.get(daemon.name)
        kept = before is not None and (before.devices, before.multi_user) == (
            daemon.devices,
            daemon.multi_user,
        )
        self.started += not kept
        self.running[daemon.name] = daemon
        self.on_ensure(daemon)

    def stop(self, name: str) -> None:
        """Have it end."""
        if self.failures:
            raise self.failures.pop(0)
        self.running.pop(name, None)


class FakeTimeSlices(TimeSlices):
    """nvidia-smi of the fake machine, without a process."""

    def __init__(self, machine: FakeMachine, root: Path) -> None:
        super().__init__(DriverRoot(root))
        self._machine = machine
        self.calls = 0
        self.failures: list[DriverError] = []

    def set(self, uuid: str, interval: Interval) -> str | None:
        """Set it."""
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        nvml = self._machine.nvml()
        nvml.init()
        [pci] = [pci for pci in self._machine.state.gpus if self._machine.uuid(pci) == uuid]
        try:
            nvml.device_by_pci(pci).set_time_slice(INTERVALS.index(interval))
        except NvmlCallFailed as error:
            if error.code != Code.NOT_SUPPORTED:
                raise
            return "Not Supported"
        finally:
            nvml.shutdown()
        return None


def time_slice(machine: FakeMachine, pci: PciAddress) -> Interval:
    """The time-slice of a GPU now."""
    return INTERVALS[machine.state.gpus[pci].time_slice]
