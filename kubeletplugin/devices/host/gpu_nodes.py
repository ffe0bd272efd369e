"""Finds or makes the device nodes that open a GPU, one MIG instance of it, or a device of vfio."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from driver.errors import NodeIncomplete
from driver.hardware.pci import drm_folder, drm_nodes
from driver.nvml.pci_address import PciAddress
from driver.process.stamp import Stamp, stamps_of
from kubeletplugin.devices.host.driver_files import DriverRoot, InstalledDriver
from kubeletplugin.devices.host.library_files import Link

NVIDIA_MAJOR = 195
"""The character device major of /dev/nvidiaN and nvidiactl (Linux, Documentation/admin-guide/devices.txt)."""

REQUIRED_CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
OPTIONAL_CONTROL_NODES = ("/dev/nvidia-modeset",)


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A character device: ``path`` in the container, ``below_root`` as this process sees it."""

    path: str
    below_root: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class DeviceFolder:
    """The device nodes in ``<root>/dev``; ``root`` is empty or a path without a slash at its end."""

    root: str

    @classmethod
    def below(cls, *roots: Path) -> DeviceFolder:
        """The nodes below the first root that has /dev/nvidiactl, else this process's own /dev."""
        for root in roots:
            # Every use of the driver opens /dev/nvidiactl, so a root without it has no nodes to use.
            text = str(root).rstrip("/")
            if os.path.exists(f"{text}/dev/nvidiactl"):  # noqa: PTH110 - on every prepare
                return cls(text)
        return cls("")

    def find(self, path: str) -> DeviceNode | None:
        """The character device at the absolute ``path``, or None when there is none."""
        below_root = self.root + path
        try:
            status = os.stat(below_root)  # noqa: PTH116 - text, since every prepare asks for ten nodes
        except OSError:
            return None
        if not stat.S_ISCHR(status.st_mode):
            return None
        return DeviceNode(path, below_root, os.major(status.st_rdev), os.minor(status.st_rdev))

    def make(
        self,
        path: str,
        major: int,
        minor: int,
        mode: int,
        owner: tuple[int, int] = (0, 0),
        *,
        for_all: bool = False,
    ) -> DeviceNode | None:
        """Make the missing device at ``path`` with this mode and owner; None if that fails.

        Without ``for_all``, a mode that lets everybody write loses that right.
        """
        file = Path(self.root + path)
        try:
            file.parent.mkdir(mode=0o755, exist_ok=True)
            os.mknod(file, stat.S_IFCHR, os.makedev(major, minor))
            os.chown(file, *owner)
            # The umask of this process cuts the mode given to mknod, but not that of chmod.
            file.chmod(mode & (0o666 if for_all else 0o664))
        except OSError:
            pass  # somebody else may have made it, else the caller says that it is missing
        return self.find(path)

    def require(self, path: str) -> DeviceNode:
        """The character device at ``path``; raises NodeIncomplete when it is missing."""
        node = self.find(path)
        if node is None:
            raise NodeIncomplete(
                f"the device node {path} is missing below {self.root or '/'}",
                "load the NVIDIA kernel modules and run nvidia-modprobe -u -c 0, or nvidia-smi, on the node",
            )
        return node

    def require_gpu(self, minor: int) -> DeviceNode:
        """The node of the GPU with this minor; raises NodeIncomplete also if it opens another GPU."""
        node = self.require(f"/dev/nvidia{minor}")
        # A pretended node has the null device (1:3) in place of each GPU; its minor means nothing.
        if node.major == NVIDIA_MAJOR and node.minor != minor:
            raise NodeIncomplete(
                f"the device node {node.path} has minor {node.minor} and so belongs to another GPU",
                "remove it and run nvidia-modprobe on the node",
            )
        return node

    def control(self) -> tuple[DeviceNode, ...]:
        """The nodes that every CUDA program needs, and the optional ones that exist."""
        required = [self.require(path) for path in REQUIRED_CONTROL_NODES]
        optional = [node for path in OPTIONAL_CONTROL_NODES if (node := self.find(path))]
        return (*required, *optional)


_DRM = "/dev/dri/"

Nodes = tuple[DeviceNode, ...]

# A capability file has the lines DeviceFileMinor, DeviceFileMode (in decimal) and DeviceFileModify.
_MINOR = re.compile(r"^DeviceFileMinor:[ \t]*([0-9]{1,7})[ \t]*$", re.MULTILINE | re.ASCII)
_MODE = re.compile(r"^DeviceFileMode:[ \t]*([0-9]{1,5})[ \t]*$", re.MULTILINE | re.ASCII)
# A line of /proc/devices is a major and the name of the driver that registered it.
_CAPS_MAJOR = re.compile(r"^[ \t]*([0-9]{1,4})[ \t]+nvidia-caps[ \t]*$", re.MULTILINE | re.ASCII)
_CHANNELS_MAJOR = re.compile(
    r"^[ \t]*([0-9]{1,4})[ \t]+nvidia-caps-imex-channels[ \t]*$", re.MULTILINE | re.ASCII
)
_CAPABILITIES = Path("driver/nvidia/capabilities")
_ON_NODE = Path("/proc") / _CAPABILITIES
_MOST_CHARACTERS = 64 * 1024

_UVM_MINORS = {"/dev/nvidia-uvm": 0, "/dev/nvidia-uvm-tools": 1}
_UVM_MAJOR = re.compile(r"^[ \t]*([0-9]{1,4})[ \t]+nvidia-uvm[ \t]*$", re.MULTILINE | re.ASCII)
# A line of /proc/driver/nvidia/params, such as "DeviceFileMode: 438".
_PARAMETER = re.compile(r"^(\w+):[ \t]*([0-9]{1,10})[ \t]*$", re.MULTILINE | re.ASCII)
_EVERYBODY = 0o666
"""The driver's own default (DeviceFileMode 438); the kernel module decides what a process may do."""


@dataclass(slots=True)
class HostNow:
    """The host during one call: the driver has one root, and each folder is looked at once."""

    installed: InstalledDriver
    _root: DriverRoot | None = None
    _stamps: dict[str, Stamp | None] = field(default_factory=dict)

    def driver(self) -> DriverRoot:
        """The root that counts; raises NodeIncomplete while no place has a driver."""
        if self._root is None:
            self._root = self.installed.now()
        return self._root

    def roots(self) -> tuple[Path, ...]:
        """Below which nodes are looked for, in this order, before those of this process.

        Raises NodeIncomplete.
        """
        root, host_root = self.driver().path, self.installed.host_root
        return (root,) if host_root in (None, root) else (root, host_root)

    def stamps(self, folders: tuple[str, ...]) -> tuple[Stamp, ...] | None:
        """The stamp of each folder, None while one is too young to tell two changes apart."""
        missing = [folder for folder in folders if folder not in self._stamps]
        if missing:
            self._stamps |= stamps_of(missing)
        stamps = [self._stamps[folder] for folder in folders]
        return None if None in stamps else tuple(stamp for stamp in stamps if stamp is not None)


class GpuNodes:
    """The nodes below the driver's root, else the host's. Minors may change at a reboot or a reset.

    Found nodes are remembered until one of their folders changes.
    """

    def __init__(self, sysfs_root: Path) -> None:
        self._sysfs_root = sysfs_root
        self._known: dict[str, tuple[tuple[Stamp, ...], Nodes]] = {}

    def whole(self, pci: PciAddress, minor: int, host: HostNow) -> Nodes:
        """The node of the GPU with this minor, and its DRM nodes; raises NodeIncomplete."""
        roots = host.roots()

        def find() -> Nodes:
            folder = DeviceFolder.below(*roots)
            # sysfs names the DRM nodes of a function; a container's /dev may lack them, which is fine.
            found = (folder.find(f"/dev/dri/{name}") for name in drm_nodes(self._sysfs_root, pci))
            return (folder.require_gpu(minor), *(node for node in found if node is not None))

        folders = (*_folders(roots, "dev"), *_folders(roots, "dev/dri"), drm_folder(self._sysfs_root, pci))
        return self._unless_changed(f"{roots[0]} {pci} {minor}", host.stamps(folders), find)

    def instance(self, minor: int, gpu_instance_id: int, compute_instance_id: int, host: HostNow) -> Nodes:
        """The nodes that open one compute instance; raises NodeIncomplete.

        The DRM nodes are left out, since they would open all of the GPU.
        """
        roots = host.roots()
        folder = DeviceFolder.below(*roots)
        capabilities = Capabilities.below(roots[0])
        own = capabilities.nodes(folder, minor, gpu_instance_id, compute_instance_id)
        # CUDA opens the GPU's node as well; the capability nodes decide which instance it may use.
        return (folder.require_gpu(minor), *own)

    def control(self, host: HostNow) -> Nodes:
        """The nodes that every CUDA program needs; missing ones are made. Raises NodeIncomplete."""
        roots = host.roots()

        def find() -> Nodes:
            folder = DeviceFolder.below(*roots)
            _make_uvm_nodes(folder)
            return folder.control()

        return self._unless_changed(f"{roots[0]} control", host.stamps(_folders(roots, "dev")), find)

    def channel(self, number: int, host: HostNow) -> DeviceNode:
        """The node of an IMEX channel. It need not exist: the runtime makes the container's by its numbers.

        Raises NodeIncomplete while the NVIDIA driver has no channels.
        """
        proc = Capabilities.below(host.roots()[0]).proc
        # The kernel chooses the major at each load of the driver; the minor is the channel (IMEX guide,
        # "IMEX Channels").
        major = _number(_CHANNELS_MAJOR, _read(proc / "devices"))
        if major is None:
            raise NodeIncomplete(
                f"the NVIDIA driver has no IMEX channels: {proc / 'devices'} lacks nvidia-caps-imex-channels",
                "check that nvidia.ko is loaded and NVreg_ImexChannelCount is not 0",
            )
        path = f"/dev/nvidia-caps-imex-channels/channel{number}"
        return DeviceNode(path, path, major, number)

    def _unless_changed(self, key: str, stamps: tuple[Stamp, ...] | None, find: Callable[[], Nodes]) -> Nodes:
        """What was found before, unless one of the folders has changed; several threads may call it.

        ``stamps`` must be from before the search. A change during it then differs from them the next time.
        """
        known = self._known.get(key)
        # mknod, unlink and rename change the time of the folder, and a node gets other numbers only by being
        # made again. So equal stamps of the folders mean the same nodes.
        if known is not None and known[0] == stamps:
            return known[1]
        found = find()
        if stamps is not None:
            self._known[key] = stamps, found
        return found


@lru_cache(maxsize=64)
def drm_links(pci: PciAddress, nodes: Nodes) -> tuple[Link, ...]:
    """The links to a GPU's DRM nodes by its address, as udev makes them (60-drm.rules)."""
    names = (node.path.removeprefix(_DRM) for node in nodes if node.path.startswith(_DRM))
    return tuple(
        Link(f"{_DRM}by-path/pci-{pci}-{'card' if name.startswith('card') else 'render'}", f"../{name}")
        for name in names
    )


@lru_cache(maxsize=16)
def _folders(roots: tuple[Path, ...], name: str) -> tuple[str, ...]:
    """The folders of that name below the roots, and below this process's own root."""
    return tuple(dict.fromkeys((*(f"{str(root).rstrip('/')}/{name}" for root in roots), f"/{name}")))


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The device nodes that let a container use one MIG instance: nvidia-capabilities of the kernel driver.

    Each instance has a file below /proc/driver/nvidia/capabilities that names the minor of its node in
    /dev/nvidia-caps (MIG user guide, "Device Nodes and Capabilities"). The minors follow the GPU's minor, so
    they are read each time. The driver does not make the node of a new instance; nvidia-modprobe or its first
    user does. ``proc`` is the /proc that is read.
    """

    proc: Path

    @classmethod
    def below(cls, driver_root: Path, proc: Path = Path("/proc")) -> Capabilities:
        """The capabilities below a driver root that has any, else those of the node itself."""
        # The root of a driver container has a /proc; a plain folder with the driver's files has none.
        own = driver_root / "proc"
        return cls(own if (own / _CAPABILITIES).is_dir() else proc)

    def nodes(
        self, devices: DeviceFolder, gpu_minor: int, gpu_instance_id: int, compute_instance_id: int
    ) -> tuple[DeviceNode, DeviceNode]:
        """The nodes of a GPU instance and of a compute instance in it, read now.

        Raises NodeIncomplete if the driver shows no such instance, or if a node is missing or has other
        numbers than the driver says.
        """
        major = self._major()
        instance = f"gpu{gpu_minor}/mig/gi{gpu_instance_id}"
        return (
            self._node(devices, f"{instance}/access", major),
            self._node(devices, f"{instance}/ci{compute_instance_id}/access", major),
        )

    def _node(self, devices: DeviceFolder, name: str, major: int | None) -> DeviceNode:
        file = self.proc / _CAPABILITIES / name
        text = _read(file)
        minor = _number(_MINOR, text)
        if minor is None:
            raise NodeIncomplete(
                f"the capability file {file} of a MIG instance is missing or has no minor number",
                "look for NVIDIA messages in the kernel log; --driver-root must point to the loaded driver",
            )
        path = f"/dev/nvidia-caps/nvidia-cap{minor}"
        node = devices.find(path)
        if node is None and major is not None:
            # The capability file has the mode for the node as well.
            node = devices.make(path, major, minor, _number(_MODE, text) or 0)
        # The kernel chooses the major at each load of the driver: an older node opens something else.
        if node is None or (major is not None and (node.major, node.minor) != (major, minor)):
            what = "missing" if node is None else f"{node.major}:{node.minor} and not {major}:{minor}"
            raise NodeIncomplete(
                f"the device node {path} of a MIG instance is {what} below {devices.root or '/'}",
                f"remove it if it is there, then run nvidia-modprobe -f {_ON_NODE / name} on the node",
            )
        return node

    def _major(self) -> int | None:
        """The major that the kernel chose for capability nodes; None if it shows none."""
        return _number(_CAPS_MAJOR, _read(self.proc / "devices"))


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return None if found is None else int(found[1])


def _read(file: Path) -> str:
    """The beginning of a file; empty if there is no file."""
    try:
        with file.open(errors="replace") as stream:
            return stream.read(_MOST_CHARACTERS)
    except OSError:
        return ""


def _make_uvm_nodes(devices: DeviceFolder) -> None:
    """Make the device nodes of nvidia-uvm that are missing, unless the driver's parameters forbid it.

    The first CUDA program on a host makes them by nvidia-modprobe; a host that runs only containers may have
    none. They are made the same way: numbers from /proc/devices, owner and mode from the driver's parameters.
    Does nothing if the module is not loaded.

    Raises NodeIncomplete for a node from an earlier load of the module: it opens something else now.
    """
    proc = Path(f"{devices.root}/proc")
    major = _number(_UVM_MAJOR, _read(proc / "devices"))
    if major is None:
        return
    missing = []
    for path, minor in _UVM_MINORS.items():
        node = devices.find(path)
        if node is None:
            missing.append((path, minor))
        elif (node.major, node.minor) != (major, minor):
            raise NodeIncomplete(
                f"the device node {path} is {node.major}:{node.minor}, but /proc/devices says "
                f"{major}:{minor}",
                "remove it; the plugin makes it again",
            )
    if not missing:
        return
    parameters = {
        name: int(value) for name, value in _PARAMETER.findall(_read(proc / "driver/nvidia/params"))
    }
    # The admin's word that device files are managed elsewhere; nvidia-modprobe obeys it as well.
    if parameters.get("ModifyDeviceFiles", 1) == 0:
        return
    owner = parameters.get("DeviceFileUID", 0), parameters.get("DeviceFileGID", 0)
    mode = parameters.get("DeviceFileMode", _EVERYBODY)
    # The driver's default lets everybody open these nodes, as the kernel module checks each use.
    for path, minor in missing:
        devices.make(path, major, minor, mode, owner, for_all=True)


class VfioNodes:
    """The device nodes that open devices of vfio, as they are now.

    They are searched below the driver's root, then the host's, then this process's own. A node that gives
    GPUs only to virtual machines has no NVIDIA driver and so no driver root.
    """

    def __init__(self, driver: InstalledDriver) -> None:
        self._driver = driver

    def of_group(self, number: int, *, with_api: bool) -> tuple[DeviceNode, ...]:
        """The node that opens a whole IOMMU group; raises NodeIncomplete.

        With ``with_api`` also the container node, by which a virtual machine monitor maps memory.
        """
        paths = [f"/dev/vfio/{number}", *(["/dev/vfio/vfio"] if with_api else [])]
        found = {path: self._find(path) for path in paths}
        missing = [path for path, node in found.items() if node is None]
        if missing:
            raise NodeIncomplete(
                f"the device node {missing[0]} is missing",
                "look for vfio in the kernel log (dmesg); the plugin needs the host's /dev",
            )
        return tuple(node for node in found.values() if node is not None)

    def of_iommufd(self, names: Sequence[str | None], *, with_api: bool) -> tuple[DeviceNode, ...] | None:
        """The nodes for IOMMUFD, one for each function; None if this kernel does not have them.

        ``names`` are those of the functions (``vfio3``), None for a function without one. Linux has
        /dev/iommu since 6.2, and the nodes of devices since 6.6 (CONFIG_VFIO_DEVICE_CDEV).
        """
        api = self._find("/dev/iommu")
        devices = [self._find(f"/dev/vfio/devices/{name}") if name else None for name in names]
        if api is None or not devices or None in devices:
            return None
        return (*(node for node in devices if node is not None), *([api] if with_api else []))

    def _find(self, path: str) -> DeviceNode | None:
        found = (DeviceFolder(root).find(path) for root in self.roots())
        return next((node for node in found if node is not None), None)

    def roots(self) -> tuple[str, ...]:
        """The folders to search for nodes, in this order, without a slash at the end."""
        roots = [self._driver.host_root, Path("/")]
        with suppress(NodeIncomplete):
            roots.insert(0, self._driver.now().path)
        return tuple(dict.fromkeys(str(root).rstrip("/") for root in roots if root is not None))
