"""Reads the state of a GPU that claims change, compares it with an earlier one, and brings that back.

The changes are made by the plugin's own code. Each can be repeated: what is as before is left alone.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from driver.errors import ClaimBlocked, ConfigError, DriverError
from driver.fabric.api import FabricError, FabricManager, NotActive
from driver.hardware.functions import NVIDIA_KERNEL_DRIVER, VFIO_PCI
from driver.hardware.inventory import Discovery
from driver.hardware.pci_view import iommu_group_of, read_function
from driver.hardware.persistence import Persistence
from driver.nvml.api import NotFound, NotSupported, NvmlDevice
from driver.nvml.deadline import Guard, Watch
from driver.nvml.mig import GpuInstance
from driver.nvml.modes import ComputeMode
from driver.nvml.pci_address import PciAddress
from driver.process.durable import make_private_folder
from fakegpu.nvml.flag import fabric_from_flag, nvml_from_flag
from gpuctl.doctor.inside.places import Places
from kubeletplugin.devices.hardware import pci_ports
from kubeletplugin.devices.host.driver_files import InstalledDriver
from kubeletplugin.devices.host.driver_programs import DriverPrograms
from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.kinds.partition.gpu_instances import GpuInstances, InstanceInUse
from kubeletplugin.devices.kinds.partition.making import MigSwitch
from kubeletplugin.devices.vfio.binder import FunctionRecord, GroupBinder, GroupRecord
from kubeletplugin.devices.vfio.function_files import Deadlines, FunctionFiles, Users
from kubeletplugin.sharing.time_slices import Interval, TimeSlices

T = TypeVar("T")

_FOLDER = Path("/var/lib/gpu-dra-verify")
_FILE = "undo.json"
_TRIES, _AGAIN_SECONDS = 10, 1.0
"""A process that was killed needs some seconds until it has let go of its partition."""


@dataclass(frozen=True, slots=True)
class FunctionState:
    """A PCI function of the GPU's IOMMU group: its driver and its driver_override, empty for none."""

    pci: str
    driver: str
    override: str


@dataclass(frozen=True, slots=True)
class InstanceState:
    """A GPU instance, by the id of its profile and its placement in memory slices."""

    id: int
    profile_id: int
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class GpuState:
    """What claims may change of a GPU. A value is None if the GPU has no such thing, or does not say.

    ``partitions`` are the active partitions of the NVLink fabric, of all GPUs of the node.
    """

    pci: str
    uuid: str
    functions: tuple[FunctionState, ...] = ()
    virtual_functions: int = 0
    mig_enabled: bool | None = None
    instances: tuple[InstanceState, ...] = ()
    compute_mode: ComputeMode | None = None
    time_slice: Interval | None = None
    persistence: bool | None = None
    partitions: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class GpuTools:
    """The parts of the plugin that read and change a GPU."""

    discovery: Discovery
    sysfs_root: Path
    kernel: Kernel
    binder: GroupBinder
    users: Users
    time_slices: TimeSlices
    fabric: FabricManager

    def functions(self, pci: PciAddress) -> FunctionFiles:
        """The files of a PCI function."""
        return FunctionFiles(self.kernel, self.sysfs_root, pci, self.users, Deadlines())


@contextmanager
def gpu_tools(places: Places) -> Iterator[GpuTools]:
    """The tools for the GPUs of a node. After the block this process has no GPU open.

    Raises ConfigError and StorageError.
    """
    roots = places.roots()
    nvml, fabric = nvml_from_flag(places.nvml, roots), fabric_from_flag(places.nvml, roots)
    # For links to the driver's libraries, which nvidia-smi needs where the driver is not in this root. A
    # temporary folder would stay after a kill; this one goes with whoever restores the machine.
    links = record_path(places).with_suffix(".links")
    make_private_folder(links.parent)
    kernel, binder, users = pci_ports(nvml, roots, places.sysfs_root)
    guard = Guard()
    discovery = Discovery(nvml, places.sysfs_root, guard)
    time_slices = TimeSlices(DriverPrograms(InstalledDriver(roots), links))
    try:
        yield GpuTools(discovery, places.sysfs_root, kernel, binder, users, time_slices, fabric)
    finally:
        discovery.close()
        guard.close()
        shutil.rmtree(links, ignore_errors=True)
        remove_own_folder(links.parent)


def is_fake(places: Places) -> bool:
    """Whether the GPUs are those of a fake machine."""
    return places.nvml.startswith("fake:")


def record_path(places: Places) -> Path:
    """Where the record of what to undo is: beside the state file of a fake machine, else below /var/lib.

    Raises ConfigError for a fake machine without a state file, whose state other processes do not see.
    """
    if not is_fake(places):
        return _FOLDER / _FILE
    state = places.nvml.partition("@")[2]
    if not state:
        raise ConfigError(
            "a fake machine without a state file cannot be changed", "use --nvml fake:MACHINE@FILE"
        )
    file = Path(state).absolute()
    return file.with_name(f"{file.name}.{_FILE}")


def remove_own_folder(folder: Path) -> None:
    """Remove the folder below /var/lib if nothing is in it; another verification may have begun."""
    if folder == _FOLDER:
        with suppress(OSError):
            folder.rmdir()


def read_state(tools: GpuTools, pci: PciAddress, uuid: str = "") -> GpuState:
    """The state of a GPU now; raises DriverError if it cannot be read.

    Of a GPU that the NVIDIA driver does not have, only the functions are known. ``uuid`` is then its UUID.
    """
    group = iommu_group_of(tools.sysfs_root, pci)
    addresses = (pci,) if group is None else tuple(one.pci for one in group.endpoints)
    functions = tuple(_function_state(tools, one) for one in addresses)
    seen = read_function(tools.sysfs_root, pci)
    virtual = 0 if seen is None else len(seen.virtual)
    partitions = _active_partitions(tools)
    if seen is not None and seen.driver != NVIDIA_KERNEL_DRIVER:
        return GpuState(str(pci), uuid, functions, virtual, partitions=partitions)
    uuid = tools.discovery.identity(pci).uuid

    def job(device: NvmlDevice, watch: Watch) -> tuple[bool | None, tuple[InstanceState, ...]]:
        enabled = _or_none(lambda: watch("mig_mode", device.mig_mode).enabled)
        found = GpuInstances(pci, device, watch).existing() if enabled else ()
        return enabled, tuple(map(_instance_state, found))

    enabled, instances = tools.discovery.on_gpu(pci, job)
    return GpuState(
        str(pci),
        uuid,
        functions,
        virtual,
        enabled,
        instances,
        tools.discovery.on_gpu(pci, _compute_mode),
        tools.time_slices.get(uuid),
        Persistence(tools.discovery).is_on(pci),
        partitions,
    )


def differences(before: GpuState, now: GpuState) -> tuple[str, ...]:
    """What is not as before, a sentence without a full stop for each."""
    found = []
    drivers = {one.pci: one for one in now.functions}
    for one in before.functions:
        other = drivers.get(one.pci, FunctionState(one.pci, "", ""))
        if one.driver != other.driver:
            found.append(f"the kernel driver of {one.pci} is {_named(other.driver)}, not {one.driver}")
        if one.override != other.override:
            found.append(f"driver_override of {one.pci} is {_named(other.override)}")
    values = (
        ("the number of virtual functions", before.virtual_functions, now.virtual_functions),
        ("MIG mode", _on(before.mig_enabled), _on(now.mig_enabled)),
        ("the compute mode", before.compute_mode, now.compute_mode),
        # nvidia-smi alone knows the time-slice, and may not say it.
        ("the time-slice", before.time_slice, now.time_slice or before.time_slice),
        ("persistence mode", _on(before.persistence), _on(now.persistence)),
        ("the active partitions of the fabric", before.partitions, now.partitions),
    )
    found += [f"{what} is {after}, not {was}" for what, was, after in values if was != after]
    more, less = set(now.instances) - set(before.instances), set(before.instances) - set(now.instances)
    found += [f"GPU instance {one.id} was not there (profile id {one.profile_id})" for one in _sorted(more)]
    found += [f"GPU instance {one.id} is gone (profile id {one.profile_id})" for one in _sorted(less)]
    return tuple(found)


def bring_back(tools: GpuTools, before: GpuState) -> tuple[str, ...]:
    """Bring an earlier state of a GPU back; returns what could not be done. A failure does not stop the rest.

    Only what differs is changed. GPU instances that are gone are not made again.
    """
    pci = PciAddress.parse(before.pci)
    failed = []
    # The kernel driver first: the rest is done by NVML, which lists the GPU only when that has it.
    for step in (_give_back, _put_partitions_back, _put_mig_back, _put_modes_back, _put_time_slice_back):
        try:
            step(tools, pci, before)
        except DriverError as error:
            failed.append(error.what)
    return tuple(failed)


def _give_back(tools: GpuTools, pci: PciAddress, before: GpuState) -> None:
    """Give the functions of the GPU's IOMMU group back to their kernel drivers."""
    records = []
    for one in before.functions:
        files = tools.functions(PciAddress.parse(one.pci))
        if not files.is_there:
            continue
        driver, override = files.driver(), files.override()
        if (driver, override) != (one.driver, one.override):
            # The name that the plugin has written: that of the driver, or of the override before it.
            written = next((name for name in (driver, override) if name not in {"", one.driver}), VFIO_PCI)
            records.append(FunctionRecord(one.pci, one.driver, one.override, written, "bound"))
    if records:
        with tools.discovery.let_go():
            tools.binder.restore(GroupRecord(tuple(records), {}).written, lambda _step, _record: None)
    persistence = Persistence(tools.discovery)
    if before.persistence is not None and persistence.is_on(pci) is (not before.persistence):
        persistence.set(pci, on=before.persistence)


def _put_partitions_back(tools: GpuTools, _pci: PciAddress, before: GpuState) -> None:
    """Deactivate the partitions of the NVLink fabric that were not active."""
    for number in _active_partitions(tools) or ():
        if before.partitions is not None and number not in before.partitions:
            with suppress(NotActive):
                tools.fabric.deactivate(number)


def _put_mig_back(tools: GpuTools, pci: PciAddress, before: GpuState) -> None:
    """Destroy the GPU instances that were not there, and set MIG mode as it was."""

    def job(device: NvmlDevice, watch: Watch) -> None:
        instances = GpuInstances(pci, device, watch)
        for one in instances.existing():
            if _instance_state(one) not in before.instances:
                instances.destroy(one, f"with profile id {one.profile_id}")
        switch = MigSwitch(pci, device, watch)
        if switch.is_on() == before.mig_enabled:
            return
        activation = switch.set(enabled=bool(before.mig_enabled))
        if activation == "in-use":
            raise ClaimBlocked(f"MIG mode of GPU {pci} cannot be set: a process uses the GPU", "end it")
        if activation == "reset-required":
            raise ClaimBlocked(f"MIG mode of GPU {pci} changes only with a reset", "reset the GPU")

    if before.mig_enabled is not None:
        _patiently(lambda: tools.discovery.on_gpu(pci, job))


def _put_modes_back(tools: GpuTools, pci: PciAddress, before: GpuState) -> None:
    """Set the compute mode as it was."""

    def job(device: NvmlDevice, watch: Watch) -> None:
        mode = before.compute_mode
        if mode is not None and _compute_mode(device, watch) != mode:
            watch("set_compute_mode", lambda: device.set_compute_mode(mode))

    tools.discovery.on_gpu(pci, job)


def _put_time_slice_back(tools: GpuTools, _pci: PciAddress, before: GpuState) -> None:
    """Set the time-slice as it was; as the driver does, the default where it could not be read."""
    if before.time_slice is None:
        with suppress(DriverError):
            tools.time_slices.set(before.uuid, "Default")
    elif tools.time_slices.get(before.uuid) != before.time_slice:
        tools.time_slices.set(before.uuid, before.time_slice)


def _patiently(change: Callable[[], None]) -> None:
    """Try a change again for some seconds while a process uses what it is about; raises its last error."""
    pause = threading.Event()
    for _ in range(_TRIES - 1):
        try:
            return change()
        except (InstanceInUse, ClaimBlocked):
            pause.wait(_AGAIN_SECONDS)
    return change()


def _function_state(tools: GpuTools, pci: PciAddress) -> FunctionState:
    files = tools.functions(pci)
    return FunctionState(str(pci), files.driver(), files.override())


def _instance_state(one: GpuInstance) -> InstanceState:
    return InstanceState(one.id, one.profile_id, one.placement.start, one.placement.size)


def _compute_mode(device: NvmlDevice, watch: Watch) -> ComputeMode | None:
    return _or_none(lambda: watch("compute_mode", device.compute_mode))


def _active_partitions(tools: GpuTools) -> tuple[int, ...] | None:
    """The numbers of the active partitions; None on a node whose NVSwitches are not shared."""
    try:
        if tools.fabric.instance() is None:
            return None
        return tuple(one.number for one in tools.fabric.partitions() if one.active)
    except FabricError:
        return None


def _or_none(call: Callable[[], T]) -> T | None:
    try:
        return call()
    except (NotSupported, NotFound):
        return None


def _on(value: bool | None) -> str:
    return {True: "on", False: "off", None: "not there"}[value]


def _named(driver: str) -> str:
    return driver or "none"


def _sorted(found: set[InstanceState]) -> list[InstanceState]:
    return sorted(found, key=lambda one: one.id)
