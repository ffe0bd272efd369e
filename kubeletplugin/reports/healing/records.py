"""Records of the resets of GPUs: which setting has to be restored, and when the reset ended.

One file for each GPU. A file that cannot be read counts as missing: at worst a health
verdict stays longer, or persistence mode stays off, which nothing depends on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from driver.errors import StorageError
from driver.kube.decode import decode_json
from driver.nvml.pci_address import PciAddress
from driver.process.log import get_logger
from kubeletplugin.claims.journal.record_folder import Damage, Kept, RecordFiles, RecordFolder, compact_json

FOLDER = "healing"

_SUFFIX = ".json"
_NAME = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\.json", re.ASCII)

_log = get_logger("heal")


@dataclass(frozen=True, slots=True)
class HealRecord:
    """The record of one GPU."""

    pci: str
    # Whether its persistence mode was on and was turned off for the reset.
    persistent: bool = False
    # When its last reset ended by CLOCK_BOOTTIME, 0 if there was none in this boot.
    healed_boottime_milliseconds: int = 0


class HealRecords:
    """The records. Callers that change one hold the lock of its GPU."""

    def __init__(self, folder: Path, changed_elsewhere: Callable[[], bool]) -> None:
        """The folder is made with the first record: most nodes never heal a GPU.

        ``changed_elsewhere()`` is whether another instance may have written since its last call.
        """
        self._files = RecordFolder(folder, _FILES, _damaged, changed_elsewhere, made_late=True)

    def get(self, pci: PciAddress) -> HealRecord:
        """The record of a GPU, an empty one without a file."""
        found = (record for record in self.records() if record.pci == str(pci))
        return next(found, HealRecord(str(pci)))

    def records(self) -> tuple[HealRecord, ...]:
        """The records, sorted by GPU; empty if they cannot be read now."""
        try:
            return self._files.records()
        except StorageError as error:
            _log.warning("cannot read the records of earlier resets", error=str(error))
            return ()

    def put(self, record: HealRecord) -> None:
        """Write a record; raises StorageError."""
        self._files.put(record.pci, record)


def _damaged(pci: str, damage: Damage[HealRecord]) -> Kept[HealRecord]:
    _log.warning("cannot read the record of a reset", gpu=pci, reason=damage.reason)
    # No value: the record counts as missing.
    return Kept(None, damage.reason)


def gpu_of(name: str) -> str | None:
    """The GPU that a record of this file name belongs to; None for any other file."""
    return name.removesuffix(_SUFFIX) if _NAME.fullmatch(name) else None


def _read(pci: str, data: bytes) -> HealRecord:
    """Decode a GPU's record; raises one of ``MALFORMED`` if it is not valid."""
    body = decode_json(data)
    if body["pci"] != pci:
        raise ValueError(f"it belongs to {body['pci']}")
    return HealRecord(pci, body["persistent"] is True, int(body["healed_boottime_milliseconds"]))


_FILES: RecordFiles[str, HealRecord] = RecordFiles(
    gpu_of,
    lambda pci: f"{pci}{_SUFFIX}",
    _read,
    lambda record: compact_json(asdict(record)),
    lambda record: (record.pci,),
)
