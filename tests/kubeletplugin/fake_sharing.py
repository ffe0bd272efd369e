"""Stand-ins for the MPS supervisor and for nvidia-smi that hold state, without any process."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path

from fakegpu.smi.program import reset_gpus
from kubeletplugin.kubelet.wire.mps_daemon import checked_daemon, checked_name, read_spec, write_spec
from kubeletplugin.reports.healing.gpu_reset import GpuReset
from kubeletplugin.sharing.time_slices import Interval, TimeSlices
from tests.gpus import ClaimBlocked, Code, DriverError, FakeMachine, NvmlCallFailed, PciAddress
from tests.plugin import DriverPrograms, InstalledDriver, MpsClient, MpsDaemon, MpsState, ResetFailed

INTERVALS: tuple[Interval, ...] = ("Default", "Short", "Medium", "Long")


class FakeMps(MpsClient):
    """A supervisor whose daemons are values; it outlives the plugin, and a reboot ends its daemons.

    ``tests/kubeletplugin/sharing/test_mps_contract.py`` holds it to what the real one does. ``starts`` counts
    by name how often a daemon was started: what cannot be changed while it runs takes a new one.
    ``failures`` are raised by the next calls instead of anything being done, and while it is ``silent`` no
    call is answered; ``on_ensure`` is called once a daemon serves, before that is answered.
    """

    def __init__(self, file: Path | None = None) -> None:
        """With a file the daemons are those of every process that has it."""
        super().__init__(Path("/nowhere"))
        self._file = file
        self.running: dict[str, MpsDaemon] = {}
        self.started = 0
        self.starts: Counter[str] = Counter()
        self.ensured = 0
        self.failures: list[DriverError] = []
        self.silent = False
        self.on_ensure: Callable[[MpsDaemon], None] = lambda _: None

    def ensure(self, daemon: MpsDaemon) -> None:
        """Have it run."""
        self.ensured += 1
        self._fail()
        checked_daemon(daemon)
        if not _can_become(self.running.get(daemon.name), daemon):
            self.started += 1
            self.starts[daemon.name] += 1
        self.running[daemon.name] = daemon
        self._save()
        self._update(self._states())
        self.on_ensure(daemon)

    def stop(self, name: str) -> None:
        """Have it end."""
        self._fail()
        checked_name(name)
        self.running.pop(name, None)
        self._save()

    def known(self) -> tuple[str, ...]:
        """The names of the daemons."""
        self._fail()
        return tuple(self.running)

    def follow(self, update: Callable[[tuple[MpsState, ...] | None], object]) -> None:
        """Tell how the daemons are now, and after that only when one is ensured: the stream is late."""
        self._update = update
        update(None if self.silent else self._states())

    def _states(self) -> tuple[MpsState, ...]:
        return tuple(MpsState(name, running=True) for name in self.running)

    def reload(self) -> None:
        """See the daemons that another process has started and ended."""
        if self._file is not None and self._file.exists():
            self.running = {one.name: one for one in map(read_spec, self._file.read_bytes().splitlines())}

    def _save(self) -> None:
        if self._file is not None:
            lines = [write_spec(one).replace(b"\n", b"") for one in self.running.values()]
            self._file.write_bytes(b"\n".join(lines))

    def _fail(self) -> None:
        if self.silent:
            raise ClaimBlocked("no MPS supervisor answers at /nowhere", "start it (gpu-dra-mps)")
        if self.failures:
            raise self.failures.pop(0)


def _can_become(before: MpsDaemon | None, after: MpsDaemon) -> bool:
    """Whether a daemon that runs can be made another without a restart: MPS cannot lift a memory limit."""
    if before is None or (before.devices, before.multi_user) != (after.devices, after.multi_user):
        return False
    limits = zip_longest(before.pinned_memory_mib, after.pinned_memory_mib, fillvalue=0)
    return not any(had and not has for had, has in limits)


class FakeTimeSlices(TimeSlices):
    """nvidia-smi of the fake machine, without a process."""

    def __init__(self, machine: FakeMachine, root: Path) -> None:
        super().__init__(DriverPrograms(InstalledDriver.below(root), root / "libraries"))
        self._machine = machine
        self.calls = 0
        self.looks = 0
        self.failures: list[DriverError] = []

    def get(self, uuid: str) -> Interval | None:
        """Read it."""
        self.looks += 1
        if self.failures:
            raise self.failures.pop(0)
        return time_slice(self._machine, self._pci(uuid))

    def _pci(self, uuid: str) -> PciAddress:
        [pci] = [pci for pci in self._machine.state.gpus if self._machine.uuid(pci) == uuid]
        return pci

    def set(self, uuid: str, interval: Interval) -> str | None:
        """Set it."""
        self.calls += 1
        if self.failures:
            raise self.failures.pop(0)
        nvml = self._machine.nvml()
        nvml.init()
        pci = self._pci(uuid)
        try:
            nvml.device_by_pci(pci).set_time_slice(INTERVALS.index(interval))
        except NvmlCallFailed as error:
            if error.code != Code.NOT_SUPPORTED:
                raise
            return "Not Supported"
        finally:
            nvml.shutdown()
        return None


class FakeGpuReset(GpuReset):
    """The reset by nvidia-smi of the fake machine, without a process."""

    def __init__(self, machine: FakeMachine, root: Path) -> None:
        super().__init__(DriverPrograms(InstalledDriver.below(root), root / "libraries"))
        self._machine = machine
        self.calls: list[tuple[PciAddress, ...]] = []
        self.failures: list[DriverError] = []

    def reset(self, gpus: Sequence[PciAddress]) -> None:
        """Reset them."""
        self.calls.append(tuple(gpus))
        if self.failures:
            raise self.failures.pop(0)
        said: list[str] = []
        if reset_gpus(self._machine, gpus, said.append):
            raise ResetFailed(f"nvidia-smi failed: {' / '.join(said)}", "end what it names")


def time_slice(machine: FakeMachine, pci: PciAddress) -> Interval:
    """The time-slice of a GPU now."""
    return INTERVALS[machine.state.gpus[pci].time_slice]
