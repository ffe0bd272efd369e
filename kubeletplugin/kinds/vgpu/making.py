"""Makes vGPUs and takes them back, through the kernel, in both of its frameworks.

What is there is read from sysfs each time and never remembered. The kernel is told one thing for each: the
type of a virtual function, or the UUID of a mediated device.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from driver.errors import ClaimBlocked, DriverError
from driver.hardware.pci_view import function_folder
from driver.hardware.vgpu_places import CURRENT_TYPE, MDEV_TYPES, MadeVgpu, creatable_on, made_on
from driver.process.log import get_logger
from kubeletplugin.host.kernel import Kernel
from kubeletplugin.kinds.partition.gpu_instances import InstanceInUse
from kubeletplugin.kinds.vgpu.record import VgpuRecord

Note = Callable[[str, VgpuRecord], None]

_WRITE_SECONDS = 20.0
_NOTHING_THERE = frozenset({errno.EPERM, errno.ENOENT, errno.ENODEV})
"""How the kernel answers who takes back what is not there: NVIDIA's module says EPERM."""

_log = get_logger("vgpus")


class Vgpus:
    """The vGPUs of a node. Calls for one GPU must not overlap: the caller holds its lock.

    ``note(step, record)`` is called between what is told to the kernel, and has written it down when it
    returns. ``users(nodes)`` names the processes that have any of these nodes open.
    """

    def __init__(self, sysfs_root: Path, kernel: Kernel, users: Callable[[VgpuRecord], str]) -> None:
        self._sysfs_root = sysfs_root
        self._kernel = kernel
        self._users = users

    def is_there(self, record: VgpuRecord) -> bool:
        """Whether the vGPU of a record exists."""
        return MadeVgpu(record.type_id, record.uuid) in made_on(self._sysfs_root, record.pci)

    def make(self, record: VgpuRecord, note: Note) -> VgpuRecord:
        """Make the vGPU, or find what an earlier try of the claim has made; the record then.

        Steps noted: ``vgpu`` before the kernel is told, ``made`` once it shows the vGPU. On an error what was
        made is taken back as far as that goes, with the step ``destroyed``, and the first error is raised.
        Raises ClaimBlocked where something else lies there, or the kernel would not make it now.
        """
        if record.attempted and self.is_there(record):
            return record
        self._refuse_if_taken(record)
        made = replace(record.unmade, attempted=True)
        note("vgpu", made)
        try:
            self._tell(record, *self._creation(record))
            if not self.is_there(record):
                raise ClaimBlocked(
                    f"the kernel took {record.profile} for {record.function}, and does not show it",
                    "look for messages of nvidia-vgpu-mgr and the nvidia module in the node's log",
                )
        except TimeoutError as error:
            note("vgpu", replace(made, hangs=True))
            raise _hanging(record) from error
        except DriverError as error:
            self._take_back(made, error, note)
            raise
        note("made", made)
        return made

    def destroy(self, record: VgpuRecord, note: Note) -> None:
        """Take the vGPU of a record back, then note ``destroyed``; gone is fine.

        Raises InstanceInUse while a virtual machine has it, ClaimBlocked where the kernel does not answer.
        """
        if not record.attempted:
            return
        if self.is_there(record) or (record.hangs and not record.uuid):
            try:
                self._tell(record, *self._removal(record))
            except TimeoutError as error:
                raise _hanging(record) from error
            if self.is_there(record):
                raise self._in_use(record)
        note("destroyed", record.unmade)

    def _refuse_if_taken(self, record: VgpuRecord) -> None:
        """Raise ClaimBlocked where the kernel would refuse it, with what is in the way."""
        there = made_on(self._sysfs_root, record.pci)
        if record.framework == "vendor-vfio" and there:
            raise ClaimBlocked(
                f"the virtual function {record.function} has a vGPU of type {there[0].type_id}, which no "
                "claim has made",
                f"clear it: echo 0 > {self._folder(record) / CURRENT_TYPE}",
            )
        if record.type_id not in creatable_on(self._sysfs_root, record.pci):
            raise ClaimBlocked(
                f"no {record.profile} can be made on {record.function} now",
                "vGPUs of another profile are on its GPU, or GPU instances are missing; delete the pod, so "
                "that it is scheduled anew",
            )

    def _creation(self, record: VgpuRecord) -> tuple[Path, str]:
        folder = self._folder(record)
        if record.framework == "vendor-vfio":
            return folder / CURRENT_TYPE, str(record.type_id)
        return folder / MDEV_TYPES / f"nvidia-{record.type_id}" / "create", record.uuid

    def _removal(self, record: VgpuRecord) -> tuple[Path, str]:
        folder = self._folder(record)
        if record.framework == "vendor-vfio":
            return folder / CURRENT_TYPE, "0"
        return folder / record.uuid / "remove", "1"

    def _folder(self, record: VgpuRecord) -> Path:
        return function_folder(self._sysfs_root, record.pci)

    def _tell(self, record: VgpuRecord, path: Path, text: str) -> None:
        """One write; what the kernel refuses becomes an error for people. Raises TimeoutError."""
        try:
            self._kernel.write(path, text, _WRITE_SECONDS)
        except TimeoutError:
            raise
        except OSError as error:
            removing = (path, text) == self._removal(record)
            if removing and error.errno in _NOTHING_THERE and not self.is_there(record):
                return
            if removing and error.errno in (errno.EBUSY, errno.EPERM):
                raise self._in_use(record) from error
            raise ClaimBlocked(
                f"the kernel refuses {text} in {path}: {error.strerror}",
                "look for messages of nvidia-vgpu-mgr and the nvidia module in the node's log",
            ) from error

    def _in_use(self, record: VgpuRecord) -> InstanceInUse:
        return InstanceInUse(
            f"the vGPU {record.profile} on {record.function} is in use by {self._users(record)}",
            "end the virtual machine; it is taken back then",
            (),
        )

    def _take_back(self, record: VgpuRecord, first: DriverError, note: Note) -> None:
        """Undo a make that ended in an error, as far as that goes; the error itself is the caller's."""
        try:
            self.destroy(record, note)
        except DriverError as second:
            _log.warning(
                "a vGPU that failed is not taken back yet",
                function=record.function,
                profile=record.profile,
                first=str(first),
                error=str(second),
            )


def _hanging(record: VgpuRecord) -> ClaimBlocked:
    return ClaimBlocked(
        f"the kernel does not answer about the vGPU {record.profile} on {record.function}",
        "look for messages of the nvidia module in the node's log (dmesg)",
    )
