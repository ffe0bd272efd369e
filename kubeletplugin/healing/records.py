"""What of a GPU's healing outlives the plugin: what has to be put back, and when it was last reset.

One file for each GPU. It means something within one boot only; what is of another boot, or cannot be read, is
as if it were not there: a verdict then stays longer, or a mode is off that nothing depends on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from driver.errors import StorageError
from driver.kube.decode import decode_json
from driver.nvml.pci_address import PciAddress
from driver.process.durable import remove, remove_unfinished, write_atomically
from driver.process.log import get_logger

FOLDER = "healing"

_NAME = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\.json", re.ASCII)

_log = get_logger("heal")


@dataclass(frozen=True, slots=True)
class HealRecord:
    """What is remembered of one GPU.

    ``persistent``: its persistence mode was on and is off for the reset. ``healed_unix_milliseconds`` is when
    its last reset ended, 0 for none in this boot.
    """

    pci: str
    boot_id: str
    persistent: bool = False
    healed_unix_milliseconds: int = 0


class HealRecords:
    """The files of one boot. Callers hold the lock of a record's GPU where they change it."""

    def __init__(self, folder: Path, boot_id: str, alone: Callable[[], bool]) -> None:
        """The folder is made with the first record: most nodes never heal a GPU.

        ``alone()`` says whether no other instance lives.
        """
        self._folder = folder
        self._boot_id = boot_id
        self._alone = alone

    def get(self, pci: PciAddress) -> HealRecord:
        """The record of a GPU, an empty one without a file."""
        return self._read(self._folder / f"{pci}.json") or HealRecord(str(pci), self._boot_id)

    def look(self) -> tuple[HealRecord, ...]:
        """The records of this boot, sorted by their GPUs."""
        return tuple(record for path in self._paths() if (record := self._read(path)) is not None)

    def put(self, record: HealRecord) -> None:
        """Write a record; raises StorageError."""
        body = json.dumps(asdict(record), sort_keys=True, separators=(",", ":"))
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"making {self._folder} failed: {error.strerror}", "check the disk") from error
        write_atomically(self._folder / f"{record.pci}.json", f"{body}\n".encode())

    def drop_earlier_boots(self) -> None:
        """Remove what is of no use any more: files of other boots, and those that a crash left unfinished.

        What cannot be removed harms nobody, and is logged.
        """
        try:
            for path in self._paths():
                if self._read(path) is None:
                    remove(path)
            remove_unfinished(self._folder, lambda name: _NAME.fullmatch(name) is not None, self._alone)
        except StorageError as error:
            _log.warning("old records of resets stay", error=str(error))

    def _paths(self) -> tuple[Path, ...]:
        """The files of records, sorted; none where they cannot be listed."""
        try:
            return tuple(sorted(path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)))
        except FileNotFoundError:
            return ()
        except OSError as error:
            _log.warning("former resets are not known", folder=str(self._folder), error=error.strerror)
            return ()

    def _read(self, path: Path) -> HealRecord | None:
        """The record in a file, None where it is of another boot or says nothing that can be read."""
        try:
            body = decode_json(path.read_bytes())
            record = HealRecord(
                str(PciAddress.parse(body["pci"])),
                str(body["boot_id"]),
                body["persistent"] is True,
                int(body["healed_unix_milliseconds"]),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            _log.warning("record of a reset cannot be read", file=str(path), reason=str(error))
            return None
        is_of_file = path.name == f"{record.pci}.json"
        return record if is_of_file and record.boot_id == self._boot_id else None
