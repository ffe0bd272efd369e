"""Remembers, over crashes, what was changed on GPUs so that they can be shared: one small file per group.

What is shared as one is a group: a GPU, a partition, or the GPUs that one claim shares by MPS. The file is
written before anything is changed and removed once all is as it was, so whatever a GPU is left with has a
file that tells how to put it back. Who has a share stands in the journal alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from driver.devices.names import parse_device_name
from driver.devices.sharing import Strategy
from driver.errors import StorageError
from driver.nvml.api import ComputeMode
from driver.nvml.pci_address import PciAddress
from driver.process.durable import remove, write_atomically
from driver.process.log import get_logger

UNKNOWN = ""
"""In place of an interval: nobody knows which one is set."""

_SUFFIX = ".json"
_ASIDE = ".unreadable"
_MALFORMED = (ValueError, TypeError, KeyError, AttributeError)
_NAME = re.compile(r"gpu-[0-9a-z-]{1,59}", re.ASCII)

_log = get_logger("sharing")


@dataclass(frozen=True, slots=True)
class SharingRecord:
    """What was changed for one group, in the boot that it names: a reboot puts everything back.

    ``gpus`` are the PCI addresses concerned. ``compute_modes`` has the mode that each GPU had before, of
    those whose mode was to be changed. ``interval`` is the time-slice that was to be set; ``daemon`` is
    whether an MPS control daemon may run. ``applied`` says that all of it was done.
    """

    group: str
    boot_id: str
    strategy: Strategy
    gpus: tuple[str, ...]
    compute_modes: Mapping[str, ComputeMode] = field(default_factory=dict)
    interval: str = "Default"
    daemon: bool = False
    applied: bool = False


class SharingRecords:
    """The files in one folder. Callers hold the locks of a group's GPUs, for all but ``look``."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._folder = folder
        self._boot_id = boot_id
        self._cache: dict[str, tuple[tuple[int, int, int], SharingRecord]] = {}
        with _storage_errors(folder, "making"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def get(self, group: str) -> SharingRecord | None:
        """The record of a group, None without one; one of an earlier boot is removed.

        One that cannot be read is put aside, and taken as if all had been changed from the defaults. Raises
        StorageError.
        """
        path = self._path(group)
        try:
            record = self._read(group, path)
            if record is not None and record.boot_id != self._boot_id:
                self.forget(group)
                return None
            return record
        except _MALFORMED as error:
            aside = path.with_suffix(_ASIDE)
            with _storage_errors(path, "putting aside"):
                path.replace(aside)
            _log.error("sharing record put aside, it cannot be read", file=str(aside), reason=str(error))
            return self.assume(group)

    def assume(self, group: str) -> SharingRecord | None:
        """Write down that all may have been changed from the defaults; None for the name of no device.

        Raises StorageError.
        """
        record = self._assumed(group)
        if record is not None:
            self.put(record)
        return record

    def look(self) -> tuple[SharingRecord, ...]:
        """All records as they are now, those of earlier boots among them; for any caller, locks or not.

        Changes nothing: who acts on a record gets it again, with the locks of its GPUs. Raises StorageError.
        """
        found = (self._seen(group) for group in self._groups())
        return tuple(record for record in found if record is not None)

    def _seen(self, group: str) -> SharingRecord | None:
        try:
            return self._read(group, self._path(group))
        except _MALFORMED:
            return self._assumed(group)

    def _read(self, group: str, path: Path) -> SharingRecord | None:
        """The record, None without one; raises StorageError, or what ``_MALFORMED`` has."""
        with _storage_errors(path, "reading"):
            try:
                status = path.stat()
                stamp = status.st_ino, status.st_mtime_ns, status.st_size
                known = self._cache.get(group)
                if known is not None and known[0] == stamp:
                    return known[1]
                data = path.read_bytes()
            except FileNotFoundError:
                return None
        record = _read(data)
        if record.group != group:
            raise ValueError(f"it is of {record.group}")
        self._cache[group] = stamp, record
        return record

    def _assumed(self, group: str) -> SharingRecord | None:
        name = parse_device_name(group)
        if name is None:
            return None
        gpu = str(name.pci)
        modes: dict[str, ComputeMode] = {gpu: "default"} if name.profile is None else {}
        return SharingRecord(group, self._boot_id, "MPS", (gpu,), modes, UNKNOWN, daemon=True)

    def put(self, record: SharingRecord) -> None:
        """Write a record; raises StorageError."""
        self._cache.pop(record.group, None)
        body = json.dumps(asdict(record), sort_keys=True, separators=(",", ":"))
        write_atomically(self._path(record.group), f"{body}\n".encode())

    def forget(self, group: str) -> None:
        """Remove a record; raises StorageError."""
        self._cache.pop(group, None)
        remove(self._path(group))

    def _groups(self) -> tuple[str, ...]:
        """The groups that have a file, sorted; whatever else lies in the folder is left alone."""
        with _storage_errors(self._folder, "listing"):
            names = [path.name for path in self._folder.iterdir()]
        groups = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
        return tuple(sorted(group for group in groups if _NAME.fullmatch(group)))

    def _path(self, group: str) -> Path:
        if not _NAME.fullmatch(group):
            raise StorageError(f"{group[:64]!r} cannot name a file", "a group has the name of a device")
        return self._folder / f"{group}{_SUFFIX}"


@contextmanager
def _storage_errors(path: Path, doing: str) -> Iterator[None]:
    """Translate the operating system's refusal."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{doing} {path} failed: {error.strerror}",
            "check the disk: see that it can be written to and has space",
        ) from error


def _read(data: bytes) -> SharingRecord:
    """Read a record; raises what ``_MALFORMED`` has when it is none."""
    body: dict[str, Any] = json.loads(data)
    modes = {str(pci): mode for pci, mode in body["compute_modes"].items()}
    if body["strategy"] not in get_args(Strategy) or not set(modes.values()) <= set(get_args(ComputeMode)):
        raise ValueError("it names a strategy or a compute mode that there is not")
    gpus = tuple(str(PciAddress.parse(pci)) for pci in body["gpus"])
    if not gpus or not modes.keys() <= set(gpus):
        raise ValueError("it has modes of GPUs that it does not name")
    return SharingRecord(
        str(body["group"]),
        str(body["boot_id"]),
        body["strategy"],
        gpus,
        modes,
        str(body["interval"]),
        bool(body["daemon"]),
        bool(body["applied"]),
    )
