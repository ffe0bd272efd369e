"""Remembers, over crashes, what was changed on GPUs so that they can be shared: one small file per group.

What is shared as one is a group: a GPU, a partition, or the GPUs that one claim shares by MPS. The file is
written before anything is changed and removed once all is as it was, so whatever a GPU is left with has a
file that tells how to put it back. Who has a share stands in the journal alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from driver.durable import TEMPORARY_PREFIX, remove_durably, write_durably
from driver.errors import StorageError
from driver.log import get_logger
from driver.names import parse_device_name
from driver.nvml.api import ComputeMode
from driver.sharing import Strategy

UNKNOWN = ""
"""In place of an interval: nobody knows which one is set."""

_SUFFIX = ".json"
_ASIDE = ".unreadable"
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
    """The files in one folder. Callers hold the locks of a group's GPUs around read and write."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._folder = folder
        self._boot_id = boot_id
        self._cache: dict[str, tuple[tuple[int, int, int], SharingRecord]] = {}
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"the folder {folder} cannot be made: {error.strerror}", "free space, or make it writable"
            ) from error

    def get(self, group: str) -> SharingRecord | None:
        """The record of a group, None without one; one of an earlier boot is removed.

        One that cannot be read is put aside, and taken as if all had been changed from the defaults. Raises
        StorageError.
        """
        path = self._path(group)
        try:
            record = self._read(group, path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"reading {path} failed: {error.strerror}", "check the disk") from error
        except (ValueError, TypeError, KeyError) as error:
            return self._assumed(group, path, str(error))
        if record.boot_id != self._boot_id:
            self.forget(group)
            return None
        return record

    def _read(self, group: str, path: Path) -> SharingRecord:
        status = path.stat()
        stamp = status.st_ino, status.st_mtime_ns, status.st_size
        known = self._cache.get(group)
        if known is not None and known[0] == stamp:
            return known[1]
        record = _read(path.read_bytes())
        if record.group != group:
            raise ValueError(f"it is of {record.group}")
        self._cache[group] = stamp, record
        return record

    def _assumed(self, group: str, path: Path, reason: str) -> SharingRecord | None:
        aside = path.with_suffix(_ASIDE)
        path.replace(aside)
        _log.error("sharing record put aside, it cannot be read", file=str(aside), reason=reason)
        name = parse_device_name(group)
        if name is None:
            return None
        gpu = str(name.pci)
        record = SharingRecord(group, self._boot_id, "MPS", (gpu,), {gpu: "default"}, UNKNOWN, daemon=True)
        self.put(record)
        return record

    def put(self, record: SharingRecord) -> None:
        """Write a record durably; raises StorageError."""
        body = json.dumps(asdict(record), sort_keys=True, separators=(",", ":"))
        write_durably(self._path(record.group), f"{body}\n".encode())

    def forget(self, group: str) -> None:
        """Remove a record; raises StorageError."""
        remove_durably(self._path(group))

    def groups(self) -> tuple[str, ...]:
        """The groups that have a record, sorted; raises StorageError."""
        try:
            names = [path.name for path in self._folder.iterdir()]
        except OSError as error:
            raise StorageError(
                f"listing {self._folder} failed: {error.strerror}", "check the disk"
            ) from error
        return tuple(
            sorted(
                name.removesuffix(_SUFFIX)
                for name in names
                if name.endswith(_SUFFIX) and not name.startswith(TEMPORARY_PREFIX)
            )
        )

    def _path(self, group: str) -> Path:
        if not _NAME.fullmatch(group):
            raise StorageError(f"{group[:64]!r} cannot name a file", "a group has the name of a device")
        return self._folder / f"{group}{_SUFFIX}"


def _read(data: bytes) -> SharingRecord:
    """Read a record; raises ValueError, TypeError or KeyError when it is none."""
    body: dict[str, Any] = json.loads(data)
    modes = {str(pci): mode for pci, mode in body["compute_modes"].items()}
    if body["strategy"] not in get_args(Strategy) or not set(modes.values()) <= set(get_args(ComputeMode)):
        raise ValueError("it names a strategy or a compute mode that there is not")
    return SharingRecord(
        str(body["group"]),
        str(body["boot_id"]),
        body["strategy"],
        tuple(map(str, body["gpus"])),
        modes,
        str(body["interval"]),
        bool(body["daemon"]),
        bool(body["applied"]),
    )
