"""Finds the processes that have device nodes of GPUs or of vfio open, by /proc; the errors that name them.

The name of a process and the path of a file prove nothing, since processes choose them. A node is recognised
by its device number, which only the kernel assigns. The plugin sees the processes of all pods, since its pod
shares the host's process ids.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from driver.errors import ClaimBlocked
from driver.hardware.functions import PciFunction
from driver.hardware.pci import drm_nodes
from driver.nvml.pci_address import PciAddress
from driver.process.privileges import CAP_SYS_ADMIN, rights_of

PROC = Path("/proc")
MOST_NAMED = 5

_LAST_SYSTEM_ACCOUNT = 999
"""SYS_UID_MAX of login.defs(5): nvidia-persistenced has an account of its own below it, people do not."""

_MOST_NAME_BYTES = 64
_MOST_CHARACTERS = 64 * 1024
# The kubelet names a pod's cgroup kubepods-…-pod<UID with underscores>.slice with systemd, and
# kubepods/…/pod<UID> with cgroupfs; the container's cgroup lies below it.
_POD = re.compile(r"[/-]pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?=[/.]|\Z)", re.ASCII)
_CONTAINER = re.compile(r"(?:[/-])([0-9a-f]{64})(?:\.scope)?$", re.ASCII | re.MULTILINE)

_LOCAL = frozenset(
    {
        "devtmpfs",
        "tmpfs",
        "ramfs",
        "rootfs",
        "overlay",
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "zfs",
        "bcachefs",
    }
)
"""File systems that can hold device nodes. Others are not touched: stat(2) waits for a dead file server."""

_MINOR = re.compile(r"^Device Minor:[ \t]*([0-9]{1,4})[ \t]*$", re.MULTILINE | re.ASCII)


@dataclass(frozen=True, slots=True)
class User:
    """A process that has a node open."""

    pid: int
    # The name that the process has given itself, in printable letters.
    name: str
    # Empty if it is in no pod.
    pod_uid: str = ""
    container_id: str = ""
    # Whether it belongs to the node itself, as far as the kernel shows: it has rights over the node, or it
    # may get them and runs as a system account. Neither is possible in a pod that is not privileged.
    is_of_node: bool = False

    def __str__(self) -> str:
        where = f" of pod {self.pod_uid}" if self.pod_uid else ""
        return f"{self.name} (process {self.pid}{where})"


def named(users: Iterable[User]) -> str:
    """The users for a sentence: at most five by name, "a process that could not be found" for none."""
    found = list(users)
    if not found:
        return "a process that was not found"
    text = ", ".join(map(str, found[:MOST_NAMED]))
    return text if len(found) <= MOST_NAMED else f"{text} and {len(found) - MOST_NAMED} more"


def user_of(pid: int, proc: Path = PROC) -> User:
    """The process with this id, as far as /proc shows it."""
    return _user(proc, pid)


def shown(users: Iterable[User]) -> tuple[str, str]:
    """The users as the error of a claim may name them, and as the node's log does.

    An error is shown in the claim's namespace. If a user is in a pod, perhaps of another namespace, only the
    log names it.
    """
    found = list(users)
    text = named(found)
    return ("the processes that the node's log names" if any(one.pod_uid for one in found) else text), text


def users_of(nodes: Iterable[Path], proc: Path = PROC) -> tuple[User, ...]:
    """The processes that have any of these nodes open, sorted by id, without this process.

    Missing nodes and symbolic links are skipped. So are processes that end meanwhile, and those whose files
    this process may not see.
    """
    wanted = {mark for node in nodes if not node.is_symlink() and (mark := _mark(node)) is not None}
    if not wanted:
        return ()
    pids = sorted(int(name) for name in _names(proc) if name.isdecimal())
    return tuple(_user(proc, pid) for pid in pids if pid != os.getpid() and _holds(proc / str(pid), wanted))


_Mark = tuple[str, int, int]
"""A device by its number; a plain file or null device, as pretended nodes are, by its place on the disk."""

_NULL = os.makedev(1, 3)


def _mark(path: str | Path) -> _Mark | None:
    try:
        # For /proc/PID/fd/N this follows the kernel's own link to the open file itself, also if that file was
        # deleted or lies in another mount namespace.
        status = os.stat(path)  # noqa: PTH116 - for each open file of the node
    except OSError:
        return None
    if stat.S_ISCHR(status.st_mode) and status.st_rdev != _NULL:
        return "device", os.major(status.st_rdev), os.minor(status.st_rdev)
    if stat.S_ISCHR(status.st_mode) or stat.S_ISREG(status.st_mode):
        return "file", status.st_dev, status.st_ino
    return None


def _holds(process: Path, wanted: set[_Mark]) -> bool:
    local: frozenset[int] | None = None
    for name in _names(process / "fd"):
        file = f"{process}/fd/{name}"
        try:
            # The text of the link is not relied on otherwise: it is only a name.
            if not os.readlink(file).startswith("/"):  # noqa: PTH115 - likewise
                continue  # a socket, a pipe, an anonymous file
        except OSError:
            continue
        # Read once for each process, and only if it has a file open.
        if local is None:
            local = frozenset(_local_mounts(process))
        if _mount_of(process / "fdinfo" / name) in local and _mark(file) in wanted:
            return True
    return False


def _local_mounts(process: Path) -> Iterator[int]:
    """The ids of the mounts of a process whose files can be read without waiting for a server."""
    try:
        with (process / "mountinfo").open(errors="replace") as lines:  # a process may have 100,000 mounts
            for line in lines:
                # proc_pid_mountinfo(5): the mount's id comes first, the type follows a lone dash.
                mount, _, kind = line.partition(" - ")
                if kind.split(" ", 1)[0] in _LOCAL:
                    yield int(mount.split(" ", 1)[0])
    except OSError:
        return


def _mount_of(info: Path) -> int | None:
    for line in _text(info).splitlines():
        key, _, value = line.partition(":")
        if key == "mnt_id":
            return int(value)
    return None


def _user(proc: Path, pid: int) -> User:
    process = proc / str(pid)
    groups = _text(process / "cgroup")
    pod, container = _POD.search(groups), _CONTAINER.search(groups)
    return User(
        pid,
        _shown(_text(process / "comm").rstrip("\n")) or "a process without a name",
        pod[1].replace("_", "-") if pod else "",
        container[1] if pod and container else "",
        _is_of_node(proc, process),
    )


def _is_of_node(proc: Path, process: Path) -> bool:
    # Root in a user namespace of its own has all capabilities there and none over the node.
    its, own = rights_of(process), rights_of(proc / "self")
    if its is None or own is None or its.namespace != own.namespace:
        return False
    may_get_them = bool(its.bounding & 1 << CAP_SYS_ADMIN)
    return its.is_privileged(own) or (may_get_them and max(its.users) <= _LAST_SYSTEM_ACCOUNT)


def _shown(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name[:_MOST_NAME_BYTES])


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are what is asked for
    except OSError:
        return []


def _text(file: Path) -> str:
    try:
        with file.open(errors="replace") as opened:
            return opened.read(_MOST_CHARACTERS)
    except OSError:
        return ""


class FunctionUsers:
    """Finds the processes that have a function open. ``device_root`` has the node's ``dev`` and ``proc``."""

    def __init__(self, device_root: Path, sysfs_root: Path, proc: Path = PROC) -> None:
        self._device_root = device_root
        self._sysfs_root = sysfs_root
        self._proc = proc

    def __call__(self, function: PciFunction) -> tuple[User, ...]:
        """The processes, sorted by id; none if the function has no nodes."""
        return users_of(self.nodes(function), self._proc)

    def nodes(self, function: PciFunction) -> Iterator[Path]:
        """Where the function's nodes are or would be, whatever driver it has now."""
        # All drivers are considered: while the kernel unbinds one, sysfs shows none.
        devices = self._device_root / "dev"
        if function.iommu_group is not None:
            # A legacy IOMMU group has one node for all of its functions.
            yield devices / "vfio" / str(function.iommu_group)
        if function.vfio_device is not None:
            yield devices / "vfio" / "devices" / function.vfio_device
        information = self._device_root / "proc/driver/nvidia/gpus" / str(function.pci) / "information"
        try:
            minor = _MINOR.search(information.read_text(errors="replace"))
        except OSError:
            minor = None
        if minor is not None:
            yield devices / f"nvidia{minor[1]}"
        for name in drm_nodes(self._sysfs_root, function.pci):
            yield devices / "dri" / name


# Each call that raises one of these can be repeated unchanged: the record says how far the last one came.
class FunctionInDoubt(ClaimBlocked):
    """The kernel has not finished a change of a function yet; it may still do so."""


class FunctionInUse(ClaimBlocked):
    """A process has a function open, so its driver would not let go of it."""


class FunctionNotMoved(ClaimBlocked):
    """The kernel refused a change of a function, or the function has another driver than expected."""


def in_use(pci: PciAddress, driver: str, users: Sequence[User]) -> FunctionInUse:
    """The error for a function that a process has open."""
    who, for_log = shown(users)
    return FunctionInUse(
        f"cannot take {pci} from {driver or 'its user'}: it is in use",
        f"it is tried again; end {who}",
        for_log=for_log,
    )


def in_doubt(pci: PciAddress, what: str, seconds: float, users: Sequence[User]) -> FunctionInDoubt:
    """The error for a function whose lock the kernel still holds."""
    return FunctionInDoubt(
        f"the state of {pci} is unknown: the kernel has not finished {what} within {seconds:g} s",
        "it continues once nothing uses the function any more; look for its address in the kernel log "
        "(dmesg)",
        for_log=f"in use by {named(users)}" if users else "",
    )


def refused(pci: PciAddress, what: str, error: OSError) -> FunctionNotMoved:
    """The error for a write that the kernel refused with an error number."""
    return FunctionNotMoved(
        f"{pci}: {what} failed: {error.strerror or error}",
        "it is tried again; the kernel log (dmesg) may say why",
    )


def without_effect(pci: PciAddress, what: str, found: str) -> FunctionNotMoved:
    """The error for a write that succeeded but after which the kernel shows something else."""
    return FunctionNotMoved(
        f"{pci}: {what}, but it has {found}",
        "it is tried again; check whether another program binds this function, and look for its address in "
        "the kernel log (dmesg)",
    )


def moved(pci: PciAddress, driver: str) -> FunctionNotMoved:
    """The error for a function that somebody else bound to a driver that is not in the record."""
    return FunctionNotMoved(
        f"another program bound {pci} to {driver}",
        "unbind it from there, or delete the pod; the driver leaves it as it is",
    )
