"""Remembers, over crashes, what was changed on GPUs so that they can be shared: one small file per group.

A group is a GPU, a partition, or the GPUs that one claim shares by MPS. The file is written before anything
is changed, and removed when everything is as before. So for every change on a GPU there is a file that says
how to undo it. Which claims have a share is in the journal alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

from driver.devices.sharing import Strategy
from driver.kinds.registry import KINDS
from driver.kube.decode import decode_json
from driver.nvml.modes import ComputeMode
from driver.nvml.pci_address import PciAddress
from driver.process.durable import put_aside
from driver.process.log import get_logger
from kubeletplugin.claims.journal.entry import is_same_load
from kubeletplugin.claims.journal.record_folder import (
    Damage,
    Kept,
    RecordFiles,
    RecordFolder,
    compact_json,
)

FOLDER = "sharing"
"""The folder of the records, below that of the boot."""

UNKNOWN = ""
"""The ``interval`` of a record whose file was lost: any time-slice may be set, and a daemon may run."""

_SUFFIX = ".json"
_NAME = re.compile(r"gpu-[0-9a-z-]{1,59}", re.ASCII)

_log = get_logger("sharing")


@dataclass(frozen=True, slots=True)
class SharingRecord:
    """What is changed for one group, in the load of the NVIDIA driver that it names."""

    group: str
    strategy: Strategy
    # The PCI addresses of the group's GPUs.
    gpus: tuple[str, ...]
    # The mode that each GPU had before; only of those whose mode is changed.
    compute_modes: Mapping[str, ComputeMode] = field(default_factory=dict)
    # The time-slice that is set, or is about to be.
    interval: str = "Default"
    # Whether an MPS control daemon may run.
    daemon: bool = False
    # Whether all of it was done.
    applied: bool = False
    driver_generation: str = ""

    def is_live(self, generation: str) -> bool:
        """Whether the changes may still be there: another load of the driver undoes them all."""
        return is_same_load(self.driver_generation, generation)


class SharingRecords:
    """The files in one folder, kept in memory. All calls but ``all`` and ``on`` need the locks of the GPUs.

    ``generation()`` differs between the loads of the NVIDIA driver. ``changed_elsewhere`` says whether
    another instance may have written since the last call. All methods raise StorageError.
    """

    def __init__(
        self,
        folder: Path,
        generation: Callable[[], str],
        changed_elsewhere: Callable[[], bool] = lambda: True,
    ) -> None:
        self.generation = generation
        self.files = RecordFolder(folder, _FILES, self._damaged, changed_elsewhere)

    def get(self, group: str) -> SharingRecord | None:
        """The record of a group, None if it has none. A record of an earlier load of the driver is removed.

        A file that cannot be read is put aside, and the record then says that everything was changed.
        """
        path, known = Path(self.files.path(group)), self.files.get(group)
        if known is None:
            return None
        if known.wrong:
            aside = put_aside(path)
            _log.error("sharing record cannot be read and was put aside", file=str(aside), reason=known.wrong)
            return self.assume(group)
        if known.record is not None and not known.record.is_live(self.generation()):
            self.forget(group)
            return None
        return known.record

    def assume(self, group: str) -> SharingRecord | None:
        """Write a record that says that everything was changed; None if the group is not named as a device.

        Undoing it sets the defaults, whether or not anything had been changed.
        """
        record = self._assumed(group)
        if record is not None:
            self.put(record)
        return record

    def all(self) -> tuple[SharingRecord, ...]:
        """All records as they are now, also of earlier loads of the driver. Needs no locks.

        To act on a record, read it again with ``get`` under the locks of its GPUs.
        """
        return self.files.records()

    def on(self, gpus: Iterable[str]) -> tuple[SharingRecord, ...]:
        """As ``all``, but only the records of any of these GPUs, given by PCI address as in sysfs."""
        return self.files.at(gpus)

    def put(self, record: SharingRecord) -> None:
        """Write a record. If that fails, the one before stays known."""
        self.files.put(record.group, record)

    def forget(self, group: str) -> None:
        """Remove a record. If that fails, it stays known."""
        self.files.forget(group)

    def _damaged(self, group: str, damage: Damage[SharingRecord]) -> Kept[SharingRecord]:
        """Assume that everything was changed. The file stays until ``get`` puts it aside under the locks."""
        return Kept(self._assumed(group), damage.reason)

    def _assumed(self, group: str) -> SharingRecord | None:
        name = KINDS.parse(group)
        if name is None or name.pci is None:
            return None
        # The group is named after its first GPU. The claims on it say later whether it has more.
        gpu, generation = str(name.pci), self.generation()
        # A partition has no compute mode of its own.
        modes: dict[str, ComputeMode] = {gpu: "default"} if name.kind.has_modes else {}
        return SharingRecord(
            group,
            "MPS",
            (gpu,),
            modes,
            UNKNOWN,
            daemon=True,
            driver_generation=generation,
        )


def group_of(name: str) -> str | None:
    """The group whose record has this file name; None if the file is not a record."""
    group = name.removesuffix(_SUFFIX)
    return group if group != name and _NAME.fullmatch(group) else None


def _read(group: str, data: bytes) -> SharingRecord:
    """Read a group's record; raises one of ``MALFORMED`` if it is not one."""
    body: dict[str, Any] = decode_json(data)
    modes = {str(pci): mode for pci, mode in body["compute_modes"].items()}
    if body["strategy"] not in get_args(Strategy) or not set(modes.values()) <= set(get_args(ComputeMode)):
        raise ValueError("it names an unknown strategy or compute mode")
    gpus = tuple(str(PciAddress.parse(pci)) for pci in body["gpus"])
    if not gpus or not modes.keys() <= set(gpus):
        raise ValueError("it has modes of GPUs that are not in it")
    if body["group"] != group:
        raise ValueError(f"it belongs to {body['group']}")
    return SharingRecord(
        group,
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
