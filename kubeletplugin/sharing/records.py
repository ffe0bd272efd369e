"""Remembers, over crashes, what was changed on GPUs so that they can be shared: one small file per group.

What is shared as one is a group: a GPU, a partition, or the GPUs that one claim shares by MPS. The file is
written before anything is changed and removed once all is as it was, so whatever a GPU is left with has a
file that tells how to put it back. Who has a share stands in the journal alone.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from driver.devices.sharing import Strategy
from driver.errors import StorageError
from driver.kinds.kind import DeviceName
from driver.kube.decode import decode_json
from driver.nvml.modes.calls import ComputeMode
from driver.nvml.pci_address import PciAddress
from driver.process.durable import remove, write_atomically
from driver.process.log import get_logger
from driver.process.stamp import Stamp, stamp_of
from kubeletplugin.journal.identity import Era
from kubeletplugin.journal.journal import NOT_OF_THE_FILE

UNKNOWN = ""
"""In place of an interval: nobody knows which one is set."""

_SUFFIX = ".json"
_ASIDE = ".unreadable"
_MALFORMED = (ValueError, TypeError, KeyError, AttributeError)
_NAME = re.compile(r"gpu-[0-9a-z-]{1,59}", re.ASCII)

_log = get_logger("sharing")


@dataclass(frozen=True, slots=True)
class SharingRecord:
    """What was changed for one group, in the boot and the load of the driver that it names.

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
    driver_generation: str = ""

    def is_live(self, era: Era) -> bool:
        """Whether what it says was changed is so now: another load of the driver has put everything back."""
        return era.covers(self.boot_id, self.driver_generation)


@dataclass(frozen=True, slots=True)
class _Known:
    """What a group's file said when it was read: ``wrong`` is empty, or why it is no record.

    ``record`` then is what is assumed instead, None for the name of no device.
    """

    record: SharingRecord | None
    stamp: Stamp | None = None
    wrong: str = ""


class SharingRecords:
    """The files in one folder, remembered. Callers hold the locks of a group's GPUs, but to ``look``.

    ``changed_elsewhere`` tells whether another instance may have written since it was last asked.
    """

    def __init__(
        self,
        folder: Path,
        era: Callable[[], Era],
        parse: Callable[[str], DeviceName | None],
        changed_elsewhere: Callable[[], bool] = lambda: True,
    ) -> None:
        """``parse`` reads the name of a device."""
        self._folder = folder
        self._era = era
        self._parse = parse
        self._changed_elsewhere = changed_elsewhere
        self._has_to_read = True
        self._lock = threading.RLock()
        self._known: dict[str, _Known] = {}
        self._by_gpu: dict[str, set[str]] = {}
        with _storage_errors(folder, "making"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def get(self, group: str) -> SharingRecord | None:
        """The record of a group, None without one; one of an earlier era is removed.

        One that cannot be read is put aside, and taken as if all had been changed from the defaults. Raises
        StorageError.
        """
        path = self._path(group)
        with self._lock:
            self._refresh()
            known = self._known.get(group)
        if known is None:
            return None
        if known.wrong:
            aside = path.with_suffix(_ASIDE)
            with _storage_errors(path, "putting aside"):
                path.replace(aside)
            _log.error("sharing record put aside, it cannot be read", file=str(aside), reason=known.wrong)
            self._drop(group)
            return self.assume(group)
        if known.record is not None and not known.record.is_live(self._era()):
            self.forget(group)
            return None
        return known.record

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
        with self._lock:
            self._refresh()
            found = [self._known[group].record for group in sorted(self._known)]
        return tuple(record for record in found if record is not None)

    def on(self, gpus: Iterable[str]) -> tuple[SharingRecord, ...]:
        """As ``look``, the records that concern any of the GPUs: PCI addresses as sysfs has them."""
        with self._lock:
            self._refresh()
            groups = {group for gpu in gpus for group in self._by_gpu.get(gpu, ())}
            found = [self._known[group].record for group in sorted(groups)]
        return tuple(record for record in found if record is not None)

    def put(self, record: SharingRecord) -> None:
        """Write a record; raises StorageError, and then what is remembered stays."""
        body = json.dumps(asdict(record), sort_keys=True, separators=(",", ":"))
        write_atomically(self._path(record.group), f"{body}\n".encode())
        self._remember(record.group, _Known(record))

    def forget(self, group: str) -> None:
        """Remove a record; raises StorageError, and then what is remembered stays."""
        remove(self._path(group))
        self._drop(group)

    def _refresh(self) -> None:
        """Read what another instance may have written; raises StorageError, and then reads again."""
        self._has_to_read |= self._changed_elsewhere()
        if not self._has_to_read:
            return
        found = self._groups()
        for group in found:
            self._load(group)
        for group in self._known.keys() - set(found):
            self._drop(group)
        self._has_to_read = False

    def _load(self, group: str) -> None:
        path, stamp, known = self._path(group), None, self._known.get(group)
        try:
            stamp = stamp_of(path)
            if known is not None and stamp is not None and known.stamp == stamp:
                return
            self._remember(group, _Known(_read(group, path.read_bytes()), stamp))
        except FileNotFoundError:
            self._drop(group)
        except _MALFORMED as error:
            self._remember(group, _Known(self._assumed(group), stamp, str(error) or type(error).__name__))
        except OSError as error:
            if error.errno in NOT_OF_THE_FILE:
                with _storage_errors(path, "reading"):
                    raise
            # The disk does not give it, which is no reason to leave the GPUs of other groups as they are.
            self._remember(group, _Known(self._assumed(group), None, str(error.strerror)))

    def _remember(self, group: str, known: _Known) -> None:
        with self._lock:
            self._drop(group)
            self._known[group] = known
            for gpu in known.record.gpus if known.record else ():
                self._by_gpu.setdefault(gpu, set()).add(group)

    def _drop(self, group: str) -> None:
        with self._lock:
            known = self._known.pop(group, None)
            for gpu in known.record.gpus if known and known.record else ():
                self._by_gpu[gpu].discard(group)

    def _assumed(self, group: str) -> SharingRecord | None:
        name = self._parse(group)
        if name is None or name.pci is None:
            return None
        gpu, era = str(name.pci), self._era()
        modes: dict[str, ComputeMode] = {gpu: "default"} if name.kind.has_modes else {}
        return SharingRecord(
            group,
            era.boot_id,
            "MPS",
            (gpu,),
            modes,
            UNKNOWN,
            daemon=True,
            driver_generation=era.driver_generation,
        )

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


def _read(group: str, data: bytes) -> SharingRecord:
    """Read a group's record; raises what ``_MALFORMED`` has when it is none."""
    body: dict[str, Any] = decode_json(data)
    modes = {str(pci): mode for pci, mode in body["compute_modes"].items()}
    if body["strategy"] not in get_args(Strategy) or not set(modes.values()) <= set(get_args(ComputeMode)):
        raise ValueError("it names a strategy or a compute mode that there is not")
    gpus = tuple(str(PciAddress.parse(pci)) for pci in body["gpus"])
    if not gpus or not modes.keys() <= set(gpus):
        raise ValueError("it has modes of GPUs that it does not name")
    if body["group"] != group:
        raise ValueError(f"it is of {body['group']}")
    return SharingRecord(
        group,
        str(body["boot_id"]),
        body["strategy"],
        gpus,
        modes,
        str(body["interval"]),
        bool(body["daemon"]),
        bool(body["applied"]),
        str(body.get("driver_generation", "")),
    )
