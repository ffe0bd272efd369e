"""Makes, writes and removes the files that containers of a claim are started with.

They are its CDI spec, put together from the edits of its kinds and of sharing, and the metadata that the spec
mounts.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from driver.errors import HardwareChanged, NodeIncomplete, StorageError
from kubeletplugin.claims.cdi.hooks import Hooks
from kubeletplugin.claims.cdi.spec import (
    NO_FILES,
    CdiDevice,
    Edits,
    FileEdits,
    HostPaths,
    MemoryHook,
    build_spec,
    file_edits,
    memory_hook_edits,
)
from kubeletplugin.claims.cdi.store import CdiStore
from kubeletplugin.claims.journal.entry import Entry, HeldDevice
from kubeletplugin.claims.metadata import ClaimMetadata, MetadataStore, metadata_mounts, request_path
from kubeletplugin.claims.ports import NO_TIMING, Timing
from kubeletplugin.devices.host.driver_files import DriverFiles, InstalledDriver
from kubeletplugin.devices.host.gpu_nodes import DeviceNode, GpuNodes, HostNow
from kubeletplugin.devices.kinds.kind import HardwareNow, NodeKinds
from kubeletplugin.sharing.shares import MpsFolders, mps_edits

_MOST_REMEMBERED = 256
_SLASH = Path("/")


@dataclass(frozen=True, slots=True)
class Spec:
    """A spec file, and its SHA-256 in hexadecimal."""

    data: bytes
    sha256: str


_Devices = tuple[CdiDevice, ...]
_Source = tuple[tuple[HeldDevice, ...], str, str, tuple[Edits, ...], MemoryHook | None]
_Parts = tuple[_Devices, tuple[DeviceNode, ...], FileEdits, HostPaths]


class Specs:
    """Makes the CDI specs of claims from their devices as they are now.

    The minors of device nodes change with reboots and resets, libraries with upgrades. So the parts of a spec
    are read each time. A spec is encoded and hashed again only if its parts differ from the last time.
    """

    def __init__(
        self,
        kinds: NodeKinds,
        nodes: GpuNodes,
        driver: InstalledDriver,
        mps: MpsFolders,
        hooks: Hooks,
        metadata: MetadataStore,
    ) -> None:
        """The path of the folder of metadata files has to be the same on the host."""
        self._kinds = kinds
        self._nodes = nodes
        self._driver = driver
        self._mps = mps
        self._hooks = hooks
        self._metadata = metadata
        # The last edits for the driver's files, by the programs that they leave out.
        self._made: dict[frozenset[str], tuple[DriverFiles, FileEdits]] = {}
        # By claim: its devices in the spec, what they were made from, all parts of the spec, and the spec.
        self._specs: OrderedDict[str, tuple[_Devices, _Source, _Parts, Spec]] = OrderedDict()

    def spec(self, entry: Entry, hardware: HardwareNow) -> Spec:
        """The spec of a claim, whose devices have to exist.

        Raises HardwareChanged if a GPU is not the one that the journal names, NodeIncomplete if a device
        node, the driver's libraries or a hook are missing, and ClaimBlocked for a device that is not made.
        """
        edits = tuple(self._edits(held, hardware) for held in entry.devices)
        hook = self.memory_hook() if entry.is_limited else None
        if hook is None and any(held.share and held.share.strategy == "MPS" for held in entry.devices):
            # Without the hook MPS works, but nobody refuses a container of whose devices CUDA hides one.
            with suppress(NodeIncomplete):
                hook = self.memory_hook()
        known = self._specs.get(entry.uid)
        source = entry.devices, entry.name, entry.pod_claim_name, edits, hook
        devices = known[0] if known is not None and known[1] == source else self._devices(entry, edits, hook)
        parts: _Parts = devices, (), NO_FILES, self._host_paths(hardware.host)
        if any(device.edits.needs_driver for device in devices):
            without = frozenset().union(*(device.edits.without_programs for device in devices))
            files, nodes = hardware.host.driver().files(), self._nodes.control(hardware.host)
            parts = devices, nodes, self._file_edits(files, parts[3], without), parts[3]
        # Without a lock: if two threads come here at once, one of them builds a spec for nothing.
        if known is not None and known[2] == parts:
            return known[3]
        data = build_spec(*parts, self._metadata.driver)
        spec = Spec(data, hashlib.sha256(data).hexdigest())
        self._specs[entry.uid] = devices, source, parts, spec
        while len(self._specs) > _MOST_REMEMBERED:
            self._specs.popitem(last=False)
        return spec

    def _edits(self, held: HeldDevice, hardware: HardwareNow) -> Edits:
        """The edits that the device's kind makes now."""
        kind = self._kinds.of(held)
        board = kind.board(held, hardware)
        if board not in (None, held.uuid):
            raise board_changed(held.device, held.uuid, board)
        return kind.edits(held, hardware)

    def _devices(self, entry: Entry, edits: Sequence[Edits], hook: MemoryHook | None) -> _Devices:
        """The devices of a spec: the edits of their kinds, and what the claim adds to them."""
        # By CDI name: with admin access several requests may have the same device, and a spec must not have
        # two devices of one name.
        found: dict[str, CdiDevice] = {}
        mounts = metadata_mounts(entry, self._metadata.folder, self._metadata.driver)
        for held, by_kind in zip(entry.devices, edits, strict=True):
            made = by_kind
            if held.share is not None:
                made += mps_edits(held, entry.devices, self._mps, request_path(entry, held.request), hook)
            if held.memory_limit_bytes is not None and hook is not None:
                made += memory_hook_edits(entry.uid, held.cdi_device, hook)
            if held.cdi_device in mounts:
                made += Edits(mounts=(mounts[held.cdi_device],), needs_driver=False)
            found.setdefault(held.cdi_device, CdiDevice(held.cdi_device, made))
        return tuple(found.values())

    def driver_files(self) -> DriverFiles:
        """The driver's files as they are now. If they differ, so do specs. Raises NodeIncomplete."""
        return self._driver.now().files()

    def memory_hook(self) -> MemoryHook:
        """The memory hook that new specs name. Raises NodeIncomplete."""
        return self._hooks.of_memory()

    def _host_paths(self, host: HostNow) -> HostPaths:
        """How paths that this process sees map to paths of the host, for the driver too if one is installed.

        The runtime resolves the paths of a spec on the host, not in this container.
        """
        host_root = self._driver.host_root
        try:
            root = host.driver().root
        except NodeIncomplete:
            return HostPaths(_SLASH, _SLASH, host_root)
        return HostPaths(root.seen, root.on_host, host_root)

    def _file_edits(self, files: DriverFiles, host: HostPaths, without_programs: frozenset[str]) -> FileEdits:
        """The edits for the driver's files.

        They are made again only if the files or the hook have changed.
        """
        hook = self._hooks.of(files, host)
        made = self._made.get(without_programs)
        if made is None or made[0] is not files or made[1].hook is not hook:
            edits = file_edits(files, host, hook, without_programs)
            made = self._made[without_programs] = (files, edits)
        return made[1]


def board_changed(device: str, published: str, found: str | None) -> HardwareChanged:
    """The error for a device whose GPU was exchanged since it was published or prepared. Both are UUIDs."""
    return HardwareChanged(
        f"device {device} was published as {published}, but its place now has {found}: the GPU was replaced",
        "delete the pod, so that it is scheduled again",
    )


class ClaimFiles:
    """The files of the claims of one node. Callers hold the claim's lock."""

    def __init__(
        self,
        store: CdiStore,
        metadata: ClaimMetadata,
        step: Callable[[str], None],
        timing: Timing = NO_TIMING,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._step = step
        self._timing = timing

    def write(self, entry: Entry, spec: Spec, *, is_new: bool = False) -> None:
        """Write the spec of a claim whose devices are made, and its metadata. Raises StorageError.

        For a claim that ``is_new`` all metadata is written, else only what is missing.
        """
        # The spec last: a runtime may start a container as soon as it sees the spec, which mounts the
        # metadata.
        started = time.perf_counter()
        if is_new:
            self._metadata.write(entry)
        else:
            self._metadata.complete(entry)
        self._step("metadata written")
        # The other driver's spec first. Both name the same devices, and a runtime refuses a device that two
        # specs have.
        if entry.is_taken_over:
            self._store.remove_former(entry.uid)
        self._store.write(entry.uid, spec.data)
        self._timing.files(time.perf_counter() - started)

    def remove(self, uid: str, entry: Entry | None) -> None:
        """Remove the claim's files.

        ``entry`` is its journal entry, None if it has none. Raises StorageError.
        """
        # The specs first, so that no container starts without its metadata.
        if entry is not None and entry.is_taken_over:
            self._store.remove_former(uid)
        self._store.remove(uid)
        if entry is not None:
            self._metadata.remove(entry)

    def are_there(self, entry: Entry, spec: Spec) -> bool:
        """Whether all files exist, and the written spec is this one. Raises StorageError."""
        if spec.sha256 != entry.spec_sha256 or self._store.read(entry.uid) != spec.data:
            return False
        return self._metadata.is_complete(entry)

    def name_another_driver(self, entry: Entry, version: str) -> bool:
        """Whether the written spec mounts libraries of the NVIDIA driver, but none of this version."""
        # The driver's libraries end in .so. and its version, libcuda.so.580.95.05 for example.
        data = self._store.read(entry.uid) or b""
        return b".so." in data and f".so.{version}".encode() not in data

    def are_as_written(self, entry: Entry) -> bool:
        """Whether all files exist, and the spec is unchanged since it was written."""
        try:
            data = self._store.read(entry.uid)
        except StorageError:
            return False
        if data is None or hashlib.sha256(data).hexdigest() != entry.spec_sha256:
            return False
        return self._metadata.is_complete(entry)
