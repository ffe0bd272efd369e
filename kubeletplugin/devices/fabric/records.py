"""Remembers, over crashes, which fabric partitions the plugin has activated: one small file for each.

The file is written before a partition is activated and removed once it is deactivated. So a partition that is
active and has no file is somebody else's. Only the journal says which claims need a partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from driver.kube.decode import decode_json
from driver.nvml.pci_address import PciAddress
from driver.process.durable import put_aside
from driver.process.log import get_logger
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.claims.journal.record_folder import (
    Damage,
    RecordFiles,
    RecordFolder,
    compact_json,
)

FOLDER = "fabric"
"""The folder of the records in the plugin's own."""

_NAME = re.compile(r"partition-(?P<number>0|[1-9][0-9]{0,8})\.json", re.ASCII)

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
        self.files = RecordFolder(folder, _FILES, _damaged, changed_elsewhere, made_late=True)

    def look(self) -> tuple[FabricRecord, ...]:
        """All records as they are now, in the order of the partitions."""
        return self.files.records()

    def on(self, gpus: Iterable[str]) -> tuple[FabricRecord, ...]:
        """The records that concern any of the GPUs."""
        return self.files.at(gpus)

    def put(self, record: FabricRecord) -> None:
        """Write a record."""
        self.files.put(record.partition, record)

    def forget(self, record: FabricRecord) -> None:
        """Remove a record."""
        self.files.forget(record.partition)


def _damaged(partition: int, damage: Damage[FabricRecord]) -> None:
    """Put the file aside, since nobody knows what was activated."""
    _log.error("record of a fabric partition cannot be read", partition=partition, reason=damage.reason)
    put_aside(damage.path)


def _name_of(partition: int) -> str:
    return f"partition-{partition}.json"


def partition_of(name: str) -> int | None:
    """The partition whose record a file of this name is; None for files of others."""
    match = _NAME.fullmatch(name)
    return int(match["number"]) if match else None


def _read(partition: int, data: bytes) -> FabricRecord:
    """Read a partition's record; raises what ``MALFORMED`` has when it is none."""
    body = decode_json(data)
    gpus = tuple(str(PciAddress.parse(pci)) for pci in body["gpus"])
    if not gpus or body["partition"] != partition:
        raise ValueError("it is of another partition, or of no GPU")
    return FabricRecord(
        partition,
        gpus,
        str(body["boot_id"]),
        str(body["driver_generation"]),
        body["active"] is True,
        tuple(str(PciAddress.parse(pci)) for pci in body["persistent"]),
    )


_FILES: RecordFiles[int, FabricRecord] = RecordFiles(
    partition_of, _name_of, _read, lambda record: compact_json(asdict(record)), lambda record: record.gpus
)
