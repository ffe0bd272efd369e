"""Remembers, over crashes, what each container of a claim may have of a GPU: one file for a claim and a GPU.

A file says at least what NVML was told: it is written before a limit is raised, and after one was lowered.
So the sum of what it says is never below what the containers together can allocate.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from driver.errors import StorageError
from driver.kube.decode import decode_json
from driver.nvml.pci_address import PciAddress
from driver.process.durable import remove, write_atomically
from driver.process.stamp import Stamp, stamp_of
from kubeletplugin.host.cgroups import Cgroup
from kubeletplugin.journal.journal import NOT_OF_THE_FILE
from kubeletplugin.memory.division import Portion
from kubeletplugin.wire.container_name import ContainerName
from kubeletplugin.wire.names import is_safe_uid

FOLDER = "memory/claims"
"""The ledger's folder, below the plugin's own."""

SCHEMA = 1
_SUFFIX = ".json"
_MALFORMED = (ValueError, TypeError, KeyError, AttributeError)

PartKey = tuple[str, str, Cgroup]
"""Claim UID, CDI device and group: what a part is of."""

Place = tuple[str, str]
"""Claim UID and the address of a GPU: what a file is of."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one container has of one device of a claim, on the GPU at ``pci``."""

    claim_uid: str
    cdi_device: str
    pci: str
    cgroup: Cgroup
    container_id: str
    name: ContainerName
    portion: Portion

    @property
    def key(self) -> PartKey:
        """What no other part has."""
        return self.claim_uid, self.cdi_device, self.cgroup


@dataclass(frozen=True, slots=True)
class _Known:
    """What a file said when it was read; ``wrong`` is empty, or why nobody knows what it says."""

    parts: tuple[Part, ...] = ()
    stamp: Stamp | None = None
    wrong: str = ""


class Ledger:
    """The files of one folder, remembered. Whoever writes holds the lock of the GPU (see ``claim_memory``).

    ``boot_id`` is that of the running boot: what another one has left says nothing. ``changed_elsewhere``
    tells whether another instance may have written since it was last asked.
    """

    def __init__(self, folder: Path, boot_id: str, changed_elsewhere: Callable[[], bool]) -> None:
        """Raises StorageError where the folder cannot be made."""
        self._folder = folder
        self._boot_id = boot_id
        self._changed_elsewhere = changed_elsewhere
        self._has_to_read = True
        self._lock = threading.RLock()
        self._known: dict[Place, _Known] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"the folder {folder} cannot be made: {error.strerror}", "free space, or make it writable"
            ) from error

    def places(self) -> tuple[Place, ...]:
        """What there are files of, sorted. Raises StorageError, as everything here does."""
        with self._lock:
            self._refresh()
            return tuple(sorted(self._known))

    def on_gpu(self, pci: str) -> tuple[Part, ...]:
        """The parts of all claims on a GPU, those aside whose file nobody can read."""
        with self._lock:
            self._refresh()
            found = [known.parts for (_, gpu), known in sorted(self._known.items()) if gpu == pci]
        return tuple(part for parts in found for part in parts)

    def wrong(self, claim_uid: str, pci: str) -> str:
        """Why nobody knows what a claim's containers have of a GPU; empty where that is known."""
        with self._lock:
            self._refresh()
            return self._known.get((claim_uid, pci), _Known()).wrong

    def put(self, claim_uid: str, pci: str, parts: Iterable[Part]) -> None:
        """Write all that a claim's containers have of a GPU; nothing removes the file."""
        held = tuple(parts)
        if not held:
            self.forget(claim_uid, pci)
            return
        body = {"schema": SCHEMA, "boot_id": self._boot_id, "parts": [_plain(part) for part in held]}
        data = json.dumps(body, sort_keys=True, separators=(",", ":"))
        write_atomically(self._path(claim_uid, pci), f"{data}\n".encode())
        with self._lock:
            self._known[claim_uid, pci] = _Known(held)

    def forget(self, claim_uid: str, pci: str) -> None:
        """Remove a file, also one that nobody can read."""
        remove(self._path(claim_uid, pci))
        with self._lock:
            self._known.pop((claim_uid, pci), None)

    def _refresh(self) -> None:
        self._has_to_read |= self._changed_elsewhere()
        if not self._has_to_read:
            return
        try:
            names = [path.name for path in self._folder.iterdir()]
        except OSError as error:
            raise StorageError(
                f"listing {self._folder} failed: {error.strerror}", "check the disk"
            ) from error
        found = {place for name in names if (place := place_of(name)) is not None}
        for place in found:
            self._load(place)
        for place in self._known.keys() - found:
            del self._known[place]
        self._has_to_read = any(known.wrong for known in self._known.values())

    def _load(self, place: Place) -> None:
        path, known, stamp = self._path(*place), self._known.get(place), None
        try:
            stamp = stamp_of(path)
            if known is not None and stamp is not None and known.stamp == stamp:
                return
            self._known[place] = _Known(_read(place, path.read_bytes(), self._boot_id), stamp)
        except FileNotFoundError:
            self._known.pop(place, None)
        except _MALFORMED as error:
            self._known[place] = _Known((), stamp, str(error) or type(error).__name__)
        except OSError as error:
            if error.errno in NOT_OF_THE_FILE:
                raise StorageError(
                    f"reading {path} failed: {error.strerror}", "give the plugin more of it"
                ) from error
            self._known[place] = _Known((), None, str(error.strerror))

    def _path(self, claim_uid: str, pci: str) -> Path:
        name = f"{claim_uid}_{pci}{_SUFFIX}"
        if place_of(name) != (claim_uid, pci):
            raise StorageError(f"{name[:128]!r} cannot name a file", "a claim's UID is a UUID")
        return self._folder / name


def place_of(name: str) -> Place | None:
    """The claim and the GPU whose file has this name; None for files that are none of the ledger's."""
    claim_uid, _, pci = name.removesuffix(_SUFFIX).rpartition("_")
    if not name.endswith(_SUFFIX) or not is_safe_uid(claim_uid):
        return None
    try:
        return (claim_uid, pci) if str(PciAddress.parse(pci)) == pci else None
    except ValueError:
        return None


def _plain(part: Part) -> dict[str, Any]:
    return {
        "cdi_device": part.cdi_device,
        "container_id": part.container_id,
        "cgroup": asdict(part.cgroup),
        "name": asdict(part.name),
        **asdict(part.portion),
    }


def _read(place: Place, data: bytes, boot_id: str) -> tuple[Part, ...]:
    """The parts in a file, none of another boot; raises what ``_MALFORMED`` has."""
    body = decode_json(data)
    if body["schema"] != SCHEMA:
        raise ValueError(f"it has schema {body['schema']!r}, and this version reads {SCHEMA}")
    return tuple(_part(place, one) for one in body["parts"]) if body["boot_id"] == boot_id else ()


def _part(place: Place, body: Mapping[str, Any]) -> Part:
    soft_bytes, hard_bytes, inode = (
        _whole(body["soft_bytes"]),
        _whole(body["hard_bytes"]),
        _whole(body["cgroup"]["inode"]),
    )
    if soft_bytes > hard_bytes:
        raise ValueError("it has a part that is guaranteed more than it may have")
    name = body["name"]
    return Part(
        *place[:1],
        _text(body["cdi_device"]),
        place[1],
        Cgroup(_text(body["cgroup"]["path"]), inode),
        _text(body["container_id"]),
        ContainerName(_text(name["namespace"]), _text(name["pod"]), _text(name["container"])),
        Portion(soft_bytes, hard_bytes),
    )


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no number of bytes")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
