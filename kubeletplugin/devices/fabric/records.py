"""Remembers, over crashes, which fabric partitions the plugin has activated: one small file for each.

The file is written before a partition is activated, and removed after it was deactivated. So an active
partition without a file was activated by somebody else. Which claims need a partition is in the journal
alone.
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
from kubeletplugin.claims.journal.entry import is_same_load
from kubeletplugin.claims.journal.record_folder import (
    Damage,
    RecordFiles,
    RecordFolder,
    compact_json,
)

FOLDER = "fabric"
"""The folder of the records, below that of the boot."""

_NAME = re.compile(r"partition-(?P<number>0|[1-9][0-9]{0,8})\.json", re.ASCII)

_log = get_logger("fabric")


@dataclass(frozen=True, slots=True)
class FabricRecord:
    """A partition that was activated, or is about to be."""

    # The fabric manager's number of it.
    partition: int
    # The PCI addresses of all of its GPUs, sorted.
    gpus: tuple[str, ...]
    # The load of the NVIDIA driver, empty if the partition outlives loading it again.
    driver_generation: str = ""
    # Whether it was activated.
    active: bool = False
    # The GPUs whose persistence mode was on before.
    persistent: tuple[str, ...] = ()

    def is_live(self, generation: str) -> bool:
        """Whether it can still be active: nothing outlives another load of the driver."""
        return is_same_load(self.driver_generation, generation)


class FabricRecords:
    """The files in one folder, kept in memory. To change a record, callers hold the locks of its GPUs.

    ``changed_elsewhere`` says whether another instance may have written since the last call. All methods
    raise StorageError.
    """

    def __init__(self, folder: Path, changed_elsewhere: Callable[[], bool]) -> None:
        """The folder is made with the first record, since most nodes have no fabric manager."""
        self.files = RecordFolder(folder, _FILES, _damaged, changed_elsewhere, made_late=True)

    def all(self) -> tuple[FabricRecord, ...]:
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
    """Put the file aside. Its partition then counts as activated by somebody else."""
    _log.error("cannot read the record of a fabric partition", partition=partition, reason=damage.reason)
    put_aside(damage.path)


def partition_of(name: str) -> int | None:
    """The partition whose record has this file name; None if the file is not a record."""
    match = _NAME.fullmatch(name)
    return int(match["number"]) if match else None


def _read(partition: int, data: bytes) -> FabricRecord:
    """Read a partition's record; raises one of ``MALFORMED`` if it is not one."""
    body = decode_json(data)
    gpus = tuple(str(PciAddress.parse(pci)) for pci in body["gpus"])
    if not gpus or body["partition"] != partition:
        raise ValueError("it belongs to another partition, or names no GPU")
    return FabricRecord(
        partition,
        gpus,
        str(body["driver_generation"]),
        body["active"] is True,
        tuple(str(PciAddress.parse(pci)) for pci in body["persistent"]),
    )


_FILES: RecordFiles[int, FabricRecord] = RecordFiles(
    partition_of,
    lambda partition: f"partition-{partition}.json",
    _read,
    lambda record: compact_json(asdict(record)),
    lambda record: record.gpus,
)
