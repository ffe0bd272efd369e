"""Remembers, over crashes, the limits of each container on a GPU: one file for each claim on each GPU.

A file is written before a limit is raised in NVML, and after one was lowered. So after a crash the limits in
the file are never below those in NVML, and their sum is at least what the containers can allocate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from driver.kube.decode import decode_json
from driver.nvml.memory_limits import Cgroup
from driver.nvml.pci_address import PciAddress
from kubeletplugin.claims.journal.record_folder import Kept, RecordFiles, RecordFolder, compact_json
from kubeletplugin.kubelet.wire.containers import ContainerName
from kubeletplugin.kubelet.wire.names import is_safe_uid

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
    """The files of one folder, kept in memory. Writers hold the lock of the GPU (see ``claim_memory``).

    ``changed_elsewhere`` says whether another instance may have written since the last
    call. All methods raise StorageError.
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
