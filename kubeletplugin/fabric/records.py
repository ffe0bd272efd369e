"""Remembers, over crashes, which fabric partitions the plugin has activated: one small file for each.

The file is written before a partition is activated and removed once it is deactivated. So whatever is active
and has no file is somebody else's. Who needs a partition stands in the journal alone.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from driver.errors import StorageError
from driver.kube.decode import decode_json
from driver.nvml.pci_address import PciAddress
from driver.process.durable import remove, write_atomically
from driver.process.log import get_logger
from kubeletplugin.journal.identity import Era
from kubeletplugin.journal.journal import NOT_OF_THE_FILE

FOLDER = "fabric"
"""The folder of the records in the plugin's own."""

_NAME = re.compile(r"partition-(?P<number>\d{1,9})\.json", re.ASCII)
_ASIDE = ".unreadable"

_log = get_logger("fabric")


@dataclass(frozen=True, slots=True)
class FabricRecord:
    """A partition that was activated in the boot and the load of the driver that it names, or is about to be.

    ``driver_generation`` is empty where loading the driver anew ends nothing. ``gpus`` are the PCI addresses
    of all of its GPUs, sorted. ``active`` says that it was activated. ``persistent`` are the GPUs
    whose persistence mode was on before.
    """

    partition: int
    gpus: tuple[str, ...]
    boot_id: str
    driver_generation: str = ""
    active: bool = False
    persistent: tuple[str, ...] = ()

    def is_live(self, era: Era) -> bool:
        """Whether it can be active now: nothing outlives a reboot, or another load of the driver."""
        return era.covers(self.boot_id, self.driver_generation)


class FabricRecords:
    """The files in one folder, remembered. Callers hold the locks of a record's GPUs where they change it.

    ``changed_elsewhere`` tells whether another instance may have written since it was last asked. All calls
    raise StorageError.
    """

    def __init__(self, folder: Path, changed_elsewhere: Callable[[], bool]) -> None:
        """The folder is made with the first record: most nodes have no fabric."""
        self._folder = folder
        self._changed_elsewhere = changed_elsewhere
        self._has_to_read = True
        self._lock = threading.RLock()
        self._known: dict[int, FabricRecord] = {}

    def look(self) -> tuple[FabricRecord, ...]:
        """All records as they are now, in the order of the partitions."""
        with self._lock:
            self._has_to_read |= self._changed_elsewhere()
            if self._has_to_read:
                self._known = {record.partition: record for record in self._read()}
                self._has_to_read = False
            return tuple(self._known[number] for number in sorted(self._known))

    def on(self, gpus: Iterable[str]) -> tuple[FabricRecord, ...]:
        """The records that concern any of the GPUs."""
        wanted = set(gpus)
        return tuple(record for record in self.look() if not wanted.isdisjoint(record.gpus))

    def put(self, record: FabricRecord) -> None:
        """Write a record."""
        body = json.dumps(asdict(record), sort_keys=True, separators=(",", ":"))
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"making {self._folder} failed: {error.strerror}", "check the disk") from error
        write_atomically(self._path(record.partition), f"{body}\n".encode())
        with self._lock:
            self._known[record.partition] = record

    def forget(self, record: FabricRecord) -> None:
        """Remove a record."""
        remove(self._path(record.partition))
        with self._lock:
            self._known.pop(record.partition, None)

    def _path(self, partition: int) -> Path:
        return self._folder / f"partition-{partition}.json"

    def _read(self) -> Iterable[FabricRecord]:
        try:
            paths = sorted(path for path in self._folder.iterdir() if _NAME.fullmatch(path.name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(
                f"listing {self._folder} failed: {error.strerror}", "check the disk"
            ) from error
        for path in paths:
            record = _record(path)
            if record is not None:
                yield record


def _record(path: Path) -> FabricRecord | None:
    """The record in a file; one that cannot be read is put aside, since nobody knows what was activated."""
    try:
        return _parsed(path)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, OSError) as error:
        if isinstance(error, OSError) and error.errno in NOT_OF_THE_FILE:
            raise StorageError(
                f"reading {path} failed: {error.strerror}", "give the plugin more of it"
            ) from error
        _log.error("record of a fabric partition cannot be read", file=str(path), reason=str(error))
        try:
            path.replace(path.with_suffix(_ASIDE))
        except OSError as refused:
            raise StorageError(
                f"putting {path} aside failed: {refused.strerror}", "check the disk"
            ) from error
        return None


def _parsed(path: Path) -> FabricRecord:
    body = decode_json(path.read_bytes())
    gpus = tuple(str(PciAddress.parse(pci)) for pci in body["gpus"])
    record = FabricRecord(
        int(body["partition"]),
        gpus,
        str(body["boot_id"]),
        str(body["driver_generation"]),
        body["active"] is True,
        tuple(str(PciAddress.parse(pci)) for pci in body["persistent"]),
    )
    if not gpus or path.name != f"partition-{record.partition}.json":
        raise ValueError("it is of another partition, or of no GPU")
    return record
