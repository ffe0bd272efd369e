"""Limits containers to their parts of one GPU's memory. Callers hold the GPU's lock.

The containers of a claim have equal parts of what the claim has. A container has one hard limit, which is
lowered when others of its claim start, never below what it uses, and is not raised again. So the limits of a
claim together never exceed what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from driver.devices.memory_limits import SMALLEST_LIMIT_BYTES
from driver.errors import ClaimBlocked, ClaimRefused, DriverError
from driver.kube.decode import decode_json
from driver.nvml.memory_limits import Cgroup, MemoryLimits
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import HeldDevice
from kubeletplugin.claims.journal.record_folder import Kept, RecordFiles, RecordFolder, compact_json
from kubeletplugin.kubelet.wire.containers import ContainerName
from kubeletplugin.kubelet.wire.names import is_safe_uid
from kubeletplugin.sharing.memory.cgroups import Cgroups
from kubeletplugin.sharing.memory.gpu_limits import MIB, GpuLimits

Device = tuple[str, str]
"""Claim UID and CDI device."""

Listed = Mapping[str, frozenset[ContainerName]]
"""By CDI device, the containers that the kubelet lists for it."""

_log = get_logger("memory")


@dataclass(frozen=True, slots=True)
class MemoryPorts:
    """What is needed to keep and to enforce the parts. ``step(name)`` lets tests stop at a step."""

    ledger: Ledger
    limits: GpuLimits
    cgroups: Cgroups
    step: Callable[[str], None]


class OneGpu:
    """The parts on one GPU as they are now, without those of containers whose control group is gone.

    Every method may raise NvmlError and StorageError, and can then be repeated.
    """

    def __init__(self, pci: str, ports: MemoryPorts) -> None:
        self.pci = pci
        self._ports = ports
        self._parts: dict[PartKey, Part] = {}
        # The UIDs of claims whose file has to be written.
        self._changed: set[str] = set()
        # What containers used when it was last read.
        self._seen_bytes: dict[PartKey, int] = {}
        # A container with several parts has one group, which is looked up once.
        exists: dict[Cgroup, bool] = {}
        for part in ports.ledger.on_gpu(pci):
            if part.cgroup not in exists:
                exists[part.cgroup] = ports.cgroups.is_there(part.cgroup)
            if exists[part.cgroup]:
                self._parts[part.key] = part
            else:
                self._changed.add(part.claim_uid)

    def admit(self, part: Part, held: HeldDevice, requests: int, listed: Collection[ContainerName]) -> int:
        """Limit a container to its part before its first process runs; the others are lowered first.

        ``part`` has no limit yet; the result is its limit in bytes. ``held`` is the claim's device. For
        ``requests`` and ``listed`` see ``containers_in_all``. Raises ClaimRefused if the container gets less
        than a program needs, ClaimBlocked if the others leave too little, NotHeld if NVML does not hold a
        limit.
        """
        # It is there if the hook asks again about a container whose answer it has missed.
        before = self._parts.pop(part.key, None)
        of_claim = [other for other in self._parts.values() if other.device == part.device]
        # Those of a container of this name that is restarted: it gets nothing in its old group.
        stale = {other.key for other in of_claim if part.name and other.name == part.name}
        present = [other.name for other in of_claim if other.key not in stale]
        number = containers_in_all(listed, [*present, part.name], requests, part.name)
        limit_bytes = held.memory_limit_bytes or 0
        target_bytes = limit_bytes // number // MIB * MIB
        if target_bytes < SMALLEST_LIMIT_BYTES:
            raise ClaimRefused(
                f"{part.name} would get {_mib(target_bytes)} of the {_mib(limit_bytes)} of {held.device}, "
                f"but a program needs {_mib(SMALLEST_LIMIT_BYTES)} to start",
                "ask for more memory, or use the claim in fewer containers",
            )
        self._lower({other.key: 0 if other.key in stale else target_bytes for other in of_claim})
        # A container uses more than its limit only if the limit was lost once.
        held_bytes = sum(
            max(self._parts[other.key].hard_bytes, self._seen_bytes.get(other.key, 0)) for other in of_claim
        )
        if held_bytes + target_bytes > limit_bytes:
            if before is not None:
                self._parts[part.key] = before
            self.write()
            raise ClaimBlocked(
                f"the container needs {_mib(target_bytes)} of the {_mib(limit_bytes)} of {held.device}, but "
                f"the claim's {len(of_claim)} other containers use or may use {_mib(held_bytes)}",
                "it is tried again; end containers of the claim, or ask for more memory",
            )
        self._parts[part.key] = replace(part, hard_bytes=target_bytes)
        self._changed.add(part.claim_uid)
        # The ledger before NVML, since the limit is new: after a crash it must not say less than NVML.
        self.write()
        self._ports.step("memory noted")
        self._hold(part.cgroup)
        self._ports.step("memory limited")
        return target_bytes

    def restore(self) -> dict[Device, str]:
        """Set every limit that differs from the ledger; returns the reasons of those that failed, by device.

        A reload of the NVIDIA driver loses all limits.
        """
        if not self._parts:
            return {}
        groups = {part.cgroup: None for part in self._parts.values()}
        limits = self._ports.limits.read(self.pci, (group.path for group in groups))
        faults: dict[Device, str] = {}
        for group in groups:
            if self._ports.limits.is_held(self.pci, group.path, self._total(group), limits.get(group.path)):
                continue
            try:
                self._hold(group)
                _log.warning("memory limit differed from the wanted one and was set again", cgroup=group.path)
            except DriverError as error:
                faults |= self._fault(group, error)
        return faults

    def leave(self, claim_uid: str) -> None:
        """Forget the parts of a claim. A container that is still there stays limited till it ends."""
        for part in [part for part in self._parts.values() if part.claim_uid == claim_uid]:
            del self._parts[part.key]
            try:
                # The container has parts of other claims on this GPU: it keeps those.
                if self._total(part.cgroup):
                    self._hold(part.cgroup)
            except DriverError as error:
                _log.warning("memory limit stays until its control group is gone", error=error.logged)
        self._changed.discard(claim_uid)
        self._ports.ledger.forget(claim_uid, self.pci)

    def write(self) -> None:
        """Write the files of the claims whose parts have changed."""
        for uid in sorted(self._changed):
            parts = [part for part in self._parts.values() if part.claim_uid == uid]
            self._ports.ledger.put(uid, self.pci, parts)
            self._changed.discard(uid)

    def _lower(self, targets: Mapping[PartKey, int]) -> None:
        """Lower the limits of containers to their targets in bytes, but not below what they use."""
        paths = {key[2].path for key in targets}
        by_path = self._ports.limits.read(self.pci, paths)
        for key, target_bytes in targets.items():
            group, part = key[2], self._parts[key]
            limits = by_path.get(group.path)
            # The limit is lost or too high, so the container may have allocated more than its part.
            if limits is None or limits.hard_bytes > self._total(group):
                limits = self._hold(group)
            try:
                used_bytes = -1
                # Until a limit is set the container can still allocate, so its use is read once more.
                while used_bytes < self._used(part, limits):
                    used_bytes = self._used(part, limits)
                    lowered = min(part.hard_bytes, max(target_bytes, -(-used_bytes // MIB) * MIB))
                    if lowered != self._parts[key].hard_bytes:
                        self._parts[key] = replace(part, hard_bytes=lowered)
                        limits = self._hold(group)
            # Whatever ends it: the ledger must not say less than what NVML may still allow.
            except BaseException:
                self._parts[key] = part
                raise
            by_path[group.path] = limits
            self._seen_bytes[key] = self._used(part, limits)
            if self._parts[key] != part:
                self._changed.add(part.claim_uid)
                self._ports.step("memory lowered")

    def _total(self, group: Cgroup) -> int:
        """The sum of a group's parts, of all claims: NVML has one hard limit for a group on a GPU."""
        return sum(part.hard_bytes for part in self._parts.values() if part.cgroup == group)

    def _used(self, part: Part, limits: MemoryLimits) -> int:
        """The bytes that a container uses of a part. Its other parts on the GPU count as filled first."""
        # NVML only says what the group uses as a whole.
        return max(0, limits.used_bytes - self._total(part.cgroup) + self._parts[part.key].hard_bytes)

    def _hold(self, group: Cgroup) -> MemoryLimits:
        return self._ports.limits.hold(self.pci, group.path, self._total(group))

    def _fault(self, group: Cgroup, error: DriverError) -> dict[Device, str]:
        """The devices whose limit could not be set, with the reason; none if the container has just ended."""
        parts = [part for part in self._parts.values() if part.cgroup == group]
        if not self._ports.cgroups.is_there(group):
            for part in parts:
                del self._parts[part.key]
                self._changed.add(part.claim_uid)
            return {}
        _log.warning("memory limit is not held", cgroup=group.path, error=error.logged)
        return {part.device: str(error) for part in parts}


def containers_in_all(
    listed: Collection[ContainerName],
    present: Collection[ContainerName],
    requests: int,
    newcomer: ContainerName,
) -> int:
    """How many containers divide a device: the ``present`` ones, and those that will start beside them.

    ``listed`` are the containers of all pods that the kubelet lists for the device. ``requests`` is the
    number of the claim's requests with devices. ``newcomer`` is the one of ``present`` that starts now.
    """
    # The kubelet does not list init containers (pkg/kubelet/apis/podresources/server_v1.go). The other
    # containers of the pod start only after this one has ended.
    is_init = bool(newcomer) and newcomer not in listed
    coming = [
        name
        for name in listed
        if name not in present
        and not (is_init and (name.namespace, name.pod) == (newcomer.namespace, newcomer.pod))
    ]
    if requests <= 1:
        return len(present) + len(coming)
    # The kubelet lists each container with all devices of its claim, whichever request it uses. So each
    # request is taken to be used by an equal number of containers, rounded up.
    started = sum(name in listed for name in present)
    return len(present) + min(len(coming), max(0, -(-len(listed) // requests) - started))


def _mib(amount_bytes: int) -> str:
    return f"{amount_bytes // MIB} MiB"


FOLDER = "memory"
"""The ledger's folder, below that of the boot."""

SCHEMA = 1
_SUFFIX = ".json"

PartKey = tuple[str, str, Cgroup]
"""What identifies a part: claim UID, CDI device and control group."""

Place = tuple[str, str]
"""What identifies a file: claim UID and the address of a GPU."""


@dataclass(frozen=True, slots=True)
class Part:
    """The limit of one container for one device of a claim, on the GPU at ``pci``; 0 before it is set."""

    claim_uid: str
    cdi_device: str
    pci: str
    cgroup: Cgroup
    container_id: str
    name: ContainerName
    hard_bytes: int = 0

    @property
    def device(self) -> tuple[str, str]:
        """The claim UID and the CDI device."""
        return self.claim_uid, self.cdi_device

    @property
    def key(self) -> PartKey:
        """What identifies the part."""
        return self.claim_uid, self.cdi_device, self.cgroup


class Ledger:
    """The limits of each container, in one file for each claim on each GPU, kept in memory as well.

    A file is written before a limit is raised in NVML, and after one was lowered. So after a crash the limits
    in the file are never below those in NVML, and their sum is at least what the containers can allocate.
    Writers hold the lock of the GPU (see ``claim_memory``). ``changed_elsewhere`` says whether another
    instance may have written since the last call. All methods raise StorageError.
    """

    def __init__(self, folder: Path, changed_elsewhere: Callable[[], bool]) -> None:
        files: RecordFiles[Place, tuple[Part, ...]] = RecordFiles(
            place_of,
            lambda place: f"{place[0]}_{place[1]}{_SUFFIX}",
            _read,
            _written,
            lambda parts: {part.pci for part in parts},
        )
        # While a file cannot be read, the containers of its claim are refused, until the claim ends.
        self._files = RecordFolder(
            folder, files, lambda _, damage: Kept(None, damage.reason), changed_elsewhere
        )

    def places(self) -> tuple[Place, ...]:
        """The claim and the GPU of each file, sorted."""
        return tuple(self._files.all())

    def on_gpu(self, pci: str) -> tuple[Part, ...]:
        """The parts of all claims on a GPU, without those whose file cannot be read."""
        return tuple(part for parts in self._files.at([pci]) for part in parts)

    def of(self, claim_uid: str, pci: str) -> tuple[Part, ...]:
        """The parts of a claim on a GPU, none if its file cannot be read."""
        known = self._files.get((claim_uid, pci))
        return (known.record if known else None) or ()

    def wrong(self, claim_uid: str, pci: str) -> str:
        """Why the parts of a claim on a GPU are unknown, empty if they are known."""
        known = self._files.get((claim_uid, pci))
        return known.wrong if known else ""

    def put(self, claim_uid: str, pci: str, parts: Iterable[Part]) -> None:
        """Write all parts of a claim on a GPU. Without parts the file is removed."""
        held = tuple(parts)
        if held:
            self._files.put((claim_uid, pci), held)
        else:
            self.forget(claim_uid, pci)

    def forget(self, claim_uid: str, pci: str) -> None:
        """Remove a file, also one that cannot be read."""
        self._files.forget((claim_uid, pci))


def place_of(name: str) -> Place | None:
    """The claim and the GPU whose file has this name, None if the file is not the ledger's."""
    claim_uid, _, pci = name.removesuffix(_SUFFIX).rpartition("_")
    if not name.endswith(_SUFFIX) or not is_safe_uid(claim_uid):
        return None
    try:
        return (claim_uid, pci) if str(PciAddress.parse(pci)) == pci else None
    except ValueError:
        return None


def _written(parts: Iterable[Part]) -> bytes:
    return compact_json({"schema": SCHEMA, "parts": [_plain(part) for part in parts]})


def _plain(part: Part) -> dict[str, Any]:
    return {
        "cdi_device": part.cdi_device,
        "container_id": part.container_id,
        "cgroup": asdict(part.cgroup),
        "name": asdict(part.name),
        "hard_bytes": part.hard_bytes,
    }


def _read(place: Place, data: bytes) -> tuple[Part, ...]:
    """The parts in a file; raises one of ``MALFORMED``."""
    body = decode_json(data)
    if body["schema"] != SCHEMA:
        raise ValueError(f"it has schema {body['schema']!r}, but this version reads {SCHEMA}")
    return tuple(_part(place, one) for one in body["parts"])


def _part(place: Place, body: Mapping[str, Any]) -> Part:
    name = body["name"]
    return Part(
        place[0],
        _text(body["cdi_device"]),
        place[1],
        Cgroup(_text(body["cgroup"]["path"]), _whole(body["cgroup"]["inode"])),
        _text(body["container_id"]),
        ContainerName(_text(name["namespace"]), _text(name["pod"]), _text(name["container"])),
        _whole(body["hard_bytes"]),
    )


def _whole(value: Any) -> int:
    # In Python a bool is an int.
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is not a number of bytes")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
