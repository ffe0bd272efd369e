"""Makes and destroys vGPUs, in both frameworks of the kernel: mediated devices and vendor-specific VFIO.

Existing vGPUs are read from sysfs each time and never remembered. One write makes a vGPU: the type into a
virtual function, or a UUID for a new mediated device.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from driver.errors import ClaimBlocked, DriverError
from driver.hardware.pci import linked_name
from driver.hardware.pci_view import function_folder, read_function, vfio_device_of
from driver.hardware.vgpu_places import CURRENT_TYPE, MDEV_TYPES, MadeVgpu, creatable_on, made_on
from driver.process.log import get_logger
from kubeletplugin.devices.host.kernel import Kernel
from kubeletplugin.devices.kinds.vgpu.record import VgpuRecord
from kubeletplugin.devices.vfio.failures import FunctionInUse, FunctionNotMoved, in_doubt
from kubeletplugin.devices.vfio.function_files import Users
from kubeletplugin.devices.vfio.users import User, named

Note = Callable[[str, VgpuRecord], None]

_WRITE_SECONDS = 20.0
_NOTHING_THERE = frozenset({errno.EPERM, errno.ENOENT, errno.ENODEV})
"""The error numbers for destroying a vGPU that does not exist; NVIDIA's module answers EPERM."""

_BUSY = frozenset({errno.EPERM, errno.EBUSY})
_SEE_LOG = "look for messages of nvidia-vgpu-mgr and of the nvidia module in the node's log"

_log = get_logger("vgpus")


class Vgpus:
    """The vGPUs of a node. Calls for one GPU must not overlap: the caller holds its lock.

    ``note(step, record)`` is called between changes and journals what is known by then. ``users(function)``
    returns the processes that have a function open.
    """

    def __init__(self, sysfs_root: Path, kernel: Kernel, users: Users) -> None:
        self._sysfs_root = sysfs_root
        self._kernel = kernel
        self._users = users

    def is_there(self, record: VgpuRecord) -> bool:
        """Whether the vGPU of a record exists."""
        return MadeVgpu(record.type_id, record.uuid) in made_on(self._sysfs_root, record.pci)

    def vfio_device(self, record: VgpuRecord) -> str | None:
        """Its name below /dev/vfio/devices, None without IOMMUFD."""
        return vfio_device_of(self._folder(record) / record.uuid)

    def iommu_group(self, record: VgpuRecord) -> int | None:
        """The number of its IOMMU group; None if no IOMMU guards it."""
        # A mediated device has a folder of its own below its function, named by its UUID. In the other
        # framework the UUID is empty, which leaves the folder of the function.
        name = linked_name(self._folder(record) / record.uuid / "iommu_group")
        return int(name) if name is not None and name.isdecimal() else None

    def make(self, record: VgpuRecord, note: Note) -> VgpuRecord:
        """Make the vGPU, or find what an earlier try of the claim has made; returns its record.

        The step ``vgpu`` is noted before the kernel is called. On an error, what was made is undone as far as
        possible, with the step ``destroyed``, and the first error is raised.
        Raises ClaimBlocked if another vGPU is in its place, or if the kernel would not make it now.
        """
        if record.attempted and self.is_there(record):
            return record
        self._refuse_if_taken(record)
        made = replace(record.unmade, attempted=True)
        note("vgpu", made)
        try:
            self._create(made)
        except TimeoutError as error:
            # The write is still under way and may make the vGPU later, so nothing can be undone yet.
            note("vgpu", replace(made, hangs=True))
            raise self._in_doubt(record) from error
        except DriverError as error:
            self._take_back(made, error, note)
            raise
        return made

    def destroy(self, record: VgpuRecord, note: Note) -> None:
        """Destroy the vGPU of a record, unless it is gone already, then note ``destroyed``.

        Raises FunctionInUse while a virtual machine has it, ClaimBlocked if the kernel does not answer.
        """
        if not record.attempted:
            return
        # A vGPU whose write hung may still appear. A virtual function can be cleared even so; a mediated
        # device has no file to write to until it exists.
        if self.is_there(record) or (record.hangs and record.framework == "vendor-vfio"):
            self._remove(record)
        note("destroyed", record.unmade)

    def _create(self, record: VgpuRecord) -> None:
        """Write to the kernel, then check that it shows the vGPU; raises TimeoutError, FunctionNotMoved."""
        folder = self._folder(record)
        path, text = folder / CURRENT_TYPE, str(record.type_id)
        if record.framework == "mdev":
            path, text = folder / MDEV_TYPES / f"nvidia-{record.type_id}" / "create", record.uuid
        try:
            self._kernel.write(path, text, _WRITE_SECONDS)
        except TimeoutError:
            raise
        except OSError as error:
            raise FunctionNotMoved(
                f"the kernel refused to make the vGPU {record.profile} on {record.function}: "
                f"{error.strerror}",
                _SEE_LOG,
            ) from error
        if not self.is_there(record):
            raise FunctionNotMoved(
                f"the kernel accepted the vGPU {record.profile} on {record.function}, but does not show it",
                _SEE_LOG,
            )

    def _remove(self, record: VgpuRecord) -> None:
        """Write to the kernel, then check that the vGPU is gone."""
        folder = self._folder(record)
        # Type 0 is no vGPU.
        path, text = folder / CURRENT_TYPE, "0"
        if record.framework == "mdev":
            path, text = folder / record.uuid / "remove", "1"
        try:
            self._kernel.write(path, text, _WRITE_SECONDS)
        except TimeoutError as error:
            raise self._in_doubt(record) from error
        except OSError as error:
            # EPERM has two meanings; sysfs tells them apart.
            there = self.is_there(record)
            if not there and error.errno in _NOTHING_THERE:
                return
            if there and error.errno in _BUSY:
                raise self._in_use(record) from error
            raise FunctionNotMoved(
                f"the kernel refused to remove the vGPU {record.profile} from {record.function}: "
                f"{error.strerror}",
                _SEE_LOG,
            ) from error
        if self.is_there(record):
            raise self._in_use(record)

    def _refuse_if_taken(self, record: VgpuRecord) -> None:
        """Raise ClaimBlocked if the kernel would refuse the vGPU, and say what is in the way."""
        there = made_on(self._sysfs_root, record.pci)
        if record.framework == "vendor-vfio" and there:
            raise ClaimBlocked(
                f"the virtual function {record.function} has a vGPU of type {there[0].type_id} that "
                "belongs to no claim",
                f"remove it: echo 0 > {self._folder(record) / CURRENT_TYPE}",
            )
        if record.type_id not in creatable_on(self._sysfs_root, record.pci):
            raise ClaimBlocked(
                f"the vGPU {record.profile} cannot be made on {record.function} now",
                "its GPU has vGPUs of another profile, or lacks GPU instances; delete the pod, so that it "
                "is scheduled again",
            )

    def _folder(self, record: VgpuRecord) -> Path:
        return function_folder(self._sysfs_root, record.pci)

    def _in_use(self, record: VgpuRecord) -> FunctionInUse:
        users = self._users_of(record)
        pods = any(one.pod_uid for one in users)
        way_out = "end the virtual machine" if pods else f"end {named(users)}"
        return FunctionInUse(
            f"the vGPU {record.profile} on {record.function} is in use",
            f"it is tried again; {way_out}",
            for_log=named(users),
        )

    def _in_doubt(self, record: VgpuRecord) -> DriverError:
        what = f"the change of its vGPU {record.profile}"
        return in_doubt(record.pci, what, _WRITE_SECONDS, self._users_of(record))

    def _users_of(self, record: VgpuRecord) -> tuple[User, ...]:
        """The processes that have it open, by its own group and device, which may not be the function's."""
        function = read_function(self._sysfs_root, record.pci)
        if function is None:
            return ()
        own = replace(function, iommu_group=self.iommu_group(record), vfio_device=self.vfio_device(record))
        return tuple(self._users(own))

    def _take_back(self, record: VgpuRecord, first: DriverError, note: Note) -> None:
        """Undo a failed make as far as possible; the caller raises the error itself."""
        try:
            self.destroy(record, note)
        except DriverError as second:
            _log.warning(
                "cannot undo a vGPU that failed yet",
                function=record.function,
                profile=record.profile,
                first=str(first),
                error=str(second),
            )
