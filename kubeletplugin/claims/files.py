"""Makes, writes and removes the files that containers of a claim are started with.

They are its CDI spec, gathered from what the kinds and the sharing of its devices say, and the metadata that
the spec mounts.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver.errors import HardwareChanged, NodeIncomplete, StorageError
from driver.kube.decode import decode_json
from kubeletplugin.claims.cdi.hooks import Hooks
from kubeletplugin.claims.cdi.memory_hook import MemoryHook, memory_hook_edits
from kubeletplugin.claims.cdi.spec import (
    NO_FILES,
    CdiDevice,
    Edits,
    FileEdits,
    HostPaths,
    build_spec,
    file_edits,
)
from kubeletplugin.claims.cdi.store import CdiStore
from kubeletplugin.claims.journal.entry import Entry
from kubeletplugin.claims.journal.record_folder import MALFORMED
from kubeletplugin.claims.metadata import ClaimMetadata, metadata_mounts
from kubeletplugin.claims.ports import NO_TIMING, Timing
from kubeletplugin.devices.host.device_nodes import DeviceNode
from kubeletplugin.devices.host.driver_files import DriverFiles, InstalledDriver
from kubeletplugin.devices.host.gpu_nodes import GpuNodes, HostNow
from kubeletplugin.devices.kinds.kind import HeldKinds, Look
from kubeletplugin.sharing.mps_edits import MpsFolders, mps_edits

_MOST_REMEMBERED = 256
_SLASH = Path("/")


@dataclass(frozen=True, slots=True)
class Spec:
    """A spec file, and its SHA-256 in hexadecimal."""

    data: bytes
    sha256: str


_Parts = tuple[tuple[CdiDevice, ...], tuple[DeviceNode, ...], FileEdits, HostPaths]


class Specs:
    """Makes the CDI specs of claims as their devices are now.

    Minors change with reboots and resets, libraries with upgrades. So the parts of a spec are looked up each
    time; if they are the same as the last time, so is the spec, and nothing is encoded and hashed again.
    """

    def __init__(
        self,
        kinds: HeldKinds,
        nodes: GpuNodes,
        driver: InstalledDriver,
        mps: MpsFolders,
        hooks: Hooks,
        metadata: Path,
    ) -> None:
        """``metadata`` is the folder of metadata files, as the host has it, too."""
        self._kinds = kinds
        self._nodes = nodes
        self._driver = driver
        self._mps = mps
        self._hooks = hooks
        self._metadata = metadata
        self._made: dict[frozenset[str], tuple[DriverFiles, FileEdits]] = {}
        self._specs: OrderedDict[str, tuple[_Parts, Spec]] = OrderedDict()

    def spec(self, entry: Entry, look: Look) -> Spec:
        """The spec of a claim, whose devices have to exist.

        Raises HardwareChanged when a GPU is not the one that the journal names, NodeIncomplete when a
        device node, the driver's libraries or a hook are missing, ClaimBlocked for a device that is not made.
        """
        found: dict[str, CdiDevice] = {}  # a device that several requests look at is one device to CDI
        mounts = metadata_mounts(entry, self._metadata)
        for held in entry.devices:
            kind = self._kinds.of(held)
            board = kind.board(held, look)
            # A rebuilt entry does not know which board it had.
            if board not in (None, held.uuid) and not entry.rebuilt:
                raise board_changed(held.device, held.uuid, board)
            edits = kind.edits(held, look)
            if held.share is not None:
                edits += mps_edits(held, entry.devices, self._mps)
            if held.memory is not None:
                edits += memory_hook_edits(entry.uid, held.cdi_device, self.memory_hook())
            if held.cdi_device in mounts:
                edits += Edits(mounts=(mounts[held.cdi_device],), needs_driver=False)
            found.setdefault(held.cdi_device, CdiDevice(held.cdi_device, edits))
        devices = tuple(found.values())
        parts: _Parts = devices, (), NO_FILES, self._host_paths(look.host)
        if any(device.edits.needs_driver for device in devices):
            without = frozenset().union(*(device.edits.without_programs for device in devices))
            files, nodes = look.host.driver().files(), self._nodes.control(look.host)
            parts = devices, nodes, self._file_edits(files, parts[3], without), parts[3]
        # Several threads may come here at once: the worst is that one of them builds a spec that is known.
        key = devices[0].name
        known = self._specs.get(key)
        if known is not None and known[0] == parts:
            return known[1]
        data = build_spec(*parts)
        spec = Spec(data, hashlib.sha256(data).hexdigest())
        self._specs[key] = (parts, spec)
        while len(self._specs) > _MOST_REMEMBERED:
            self._specs.popitem(last=False)
        return spec

    def driver_files(self) -> DriverFiles:
        """The driver's files as they are now: specs differ when these do. Raises NodeIncomplete."""
        return self._driver.now().files()

    def memory_hook(self) -> MemoryHook:
        """The hook for memory that specs name now. Raises NodeIncomplete."""
        return self._hooks.of_memory()

    def _host_paths(self, host: HostNow) -> HostPaths:
        """Where the host has what this process sees, of the driver where one is installed."""
        host_root = self._driver.host_root
        try:
            root = host.driver().root
        except NodeIncomplete:
            return HostPaths(_SLASH, _SLASH, host_root)
        return HostPaths(root.seen, root.on_host, host_root)

    def _file_edits(self, files: DriverFiles, host: HostPaths, without_programs: frozenset[str]) -> FileEdits:
        """What it was the last time, for as long as the files are the same; there are two such sets."""
        hook = self._hooks.of(files, host)
        made = self._made.get(without_programs)
        if made is None or made[0] is not files or made[1].hook is not hook:
            edits = file_edits(files, host, hook, without_programs)
            made = self._made[without_programs] = (files, edits)
        return made[1]


def _with_written_devices(spec: Spec, written: bytes) -> Spec | None:
    """The spec, but with its devices as in one that was written before, which is all that is known of them.

    None if the devices have other nodes there, which may be another GPU's by now, or other variables: clients
    of an MPS daemon must not get all programs of the driver.
    """
    try:
        now, devices = decode_json(spec.data), decode_json(written)["devices"]
        if list(map(_opened, devices)) != list(map(_opened, now["devices"])):
            return None
    except MALFORMED:
        return None
    data = f"{json.dumps({**now, 'devices': devices}, separators=(',', ':'))}\n".encode()
    return Spec(data, hashlib.sha256(data).hexdigest())


def _opened(device: Mapping[str, Any]) -> tuple[Any, ...]:
    edits = device["containerEdits"]
    return device["name"], edits.get("deviceNodes"), edits.get("env")


def board_changed(device: str, published: str, found: str | None) -> HardwareChanged:
    """The error for a device whose GPU was exchanged since it was published or prepared; both by UUID."""
    return HardwareChanged(
        f"device {device} was published as {published}, but {found} sits there now: the GPU was exchanged",
        "delete the pod, so that it is scheduled anew",
    )


class ClaimFiles:
    """The files of the claims of one node. Callers hold the claim's lock.

    A runtime may start a container as soon as it sees the spec, so that is written last and removed first.
    """

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

        All of the metadata is written for a claim that ``is_new``, else what is missing of it.
        """
        started = time.perf_counter()
        if is_new:
            self._metadata.write(entry)
        else:
            self._metadata.complete(entry)
        self._step("metadata written")
        if entry.is_taken_over:
            self._store.remove_former(entry.uid)
        self._store.write(entry.uid, spec.data)
        self._timing.files(time.perf_counter() - started)

    def remove(self, uid: str, entry: Entry | None) -> None:
        """Remove what is there of a claim; ``entry`` is what the journal has of it. Raises StorageError."""
        if entry is not None and entry.is_taken_over:
            self._store.remove_former(uid)
        self._store.remove(uid)
        if entry is not None:
            self._metadata.remove(entry)

    def are_there(self, entry: Entry, spec: Spec) -> bool:
        """Whether everything is there, and the spec is this one. Raises StorageError."""
        if spec.sha256 != entry.spec_sha256 or self._store.read(entry.uid) != spec.data:
            return False
        return self._metadata.is_complete(entry)

    def renewed(self, entry: Entry, spec: Spec) -> Spec | None:
        """What replaces the claim's spec if it would be ``spec`` now; None if the written one stays.

        Only the written spec knows the mounts and hooks of a rebuilt entry. Raises StorageError.
        """
        return _with_written_devices(spec, self._store.read(entry.uid) or b"") if entry.rebuilt else spec

    def name_another_driver(self, entry: Entry, version: str) -> bool:
        """Whether the spec names libraries of the NVIDIA driver, and none of this version."""
        data = self._store.read(entry.uid) or b""
        return b".so." in data and f".so.{version}".encode() not in data

    def are_as_written(self, entry: Entry) -> bool:
        """Whether everything is there, and the spec as it was written."""
        try:
            data = self._store.read(entry.uid)
        except StorageError:
            return False
        if data is None or hashlib.sha256(data).hexdigest() != entry.spec_sha256:
            return False
        return self._metadata.is_complete(entry)
