"""Remembers, over crashes, what was changed on GPUs so that they can be shared: one small file per group.

A group is what is shared as one: a GPU, a partition, or the GPUs that one claim shares by MPS. The file is
written before anything is changed and removed once all is as it was, so every change on a GPU has a file that
says how to put it back. Only the journal says who has a share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from driver.devices.sharing import Strategy
from driver.kinds.kind import DeviceName
from driver.kube.decode import decode_json
from driver.nvml.modes import ComputeMode
from driver.nvml.pci_address import PciAddress
from driver.process.durable import put_aside
from driver.process.log import get_logger
from kubeletplugin.claims.journal.identity import Era
from kubeletplugin.claims.journal.record_folder import (
    Damage,
    Kept,
    RecordFiles,
    RecordFolder,
    compact_json,
)

FOLDER = "sharing"
"""The folder of the records in the plugin's own."""

UNKNOWN = ""
"""In place of an interval: nobody knows which one is set."""

_SUFFIX = ".json"
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


class SharingRecords:
    """The files in one folder, remembered. Callers hold the locks of a group's GPUs, but to ``look``.

    ``changed_elsewhere`` tells whether another instance may have written since it was last asked. All calls
    raise StorageError.
    """

    def __init__(
        self,
        folder: Path,
        era: Callable[[], Era],
        parse: Callable[[str], DeviceName | None],
        changed_elsewhere: Callable[[], bool] = lambda: True,
    ) -> None:
        """``parse`` reads the name of a device."""
        self._era = era
        self._parse = parse
        self.files = RecordFolder(folder, _FILES, self._damaged, changed_elsewhere)

    def get(self, group: str) -> SharingRecord | None:
        """The record of a group, None without one; one of an earlier era is removed.

        One that cannot be read is put aside, and taken as if all had been changed from the defaults.
        """
        path, known = Path(self.files.path(group)), self.files.get(group)
        if known is None:
            return None
        if known.wrong:
            aside = put_aside(path)
            _log.error("sharing record put aside, it cannot be read", file=str(aside), reason=known.wrong)
            return self.assume(group)
        if known.record is not None and not known.record.is_live(self._era()):
            self.forget(group)
            return None
        return known.record

    def assume(self, group: str) -> SharingRecord | None:
        """Write down that all may have been changed from the defaults; None for the name of no device."""
        record = self._assumed(group)
        if record is not None:
            self.put(record)
        return record

    def look(self) -> tuple[SharingRecord, ...]:
        """All records as they are now, also of earlier boots; any caller may ask, with or without locks.

        Changes nothing: to act on a record, read it again under the locks of its GPUs.
        """
        return self.files.records()

    def on(self, gpus: Iterable[str]) -> tuple[SharingRecord, ...]:
        """As ``look``, the records that concern any of the GPUs: PCI addresses as sysfs has them."""
        return self.files.at(gpus)

    def put(self, record: SharingRecord) -> None:
        """Write a record; where that fails, what is remembered stays."""
        self.files.put(record.group, record)

    def forget(self, group: str) -> None:
        """Remove a record; where that fails, what is remembered stays."""
        self.files.forget(group)

    def _damaged(self, group: str, damage: Damage[SharingRecord]) -> Kept[SharingRecord]:
        """Until somebody with the locks gets it the file stays, and the most counts as changed."""
        return Kept(self._assumed(group), damage.reason)

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


def group_of(name: str) -> str | None:
    """The group whose record a file of this name is; None for files of others."""
    group = name.removesuffix(_SUFFIX)
    return group if group != name and _NAME.fullmatch(group) else None


def _read(group: str, data: bytes) -> SharingRecord:
    """Read a group's record; raises what ``MALFORMED`` has when it is none."""
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


_FILES: RecordFiles[str, SharingRecord] = RecordFiles(
    group_of,
    lambda group: f"{group}{_SUFFIX}",
    _read,
    lambda record: compact_json(asdict(record)),
    lambda record: record.gpus,
)
