"""The file in which a controller keeps incidents for the next one, since NVML reports each only once.

It has to survive the end of the process alone: a reboot ends all incidents. It names the boot in which it was
written, and exists only while there is an incident.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driver.devices.region import Region
from driver.errors import StorageError
from driver.health.judge import Incident
from driver.health.xids import XID_CLASSES
from driver.nvml.mig import Placement
from driver.nvml.pci_address import PciAddress
from driver.process.boot import running_boot_id
from driver.process.durable import (
    make_private_folder,
    put_aside,
    regular_only,
    remove,
    remove_unfinished,
    storage_errors,
    write_atomically,
)

FOLDER = "controller"
"""The controller's folder in the kubelet plugin's, the only one there in which it may write."""

_NAME = "incidents.json"


def read_incidents(folder: Path) -> dict[Incident, float]:
    """The incidents of this boot, each with the time of its last report by CLOCK_BOOTTIME.

    A damaged file is put aside. Only who may write may call this. Raises StorageError.
    """
    remove_unfinished(folder, lambda name: name == _NAME, lambda: True)
    path = folder / _NAME
    with storage_errors(path, "reading"):
        try:
            with open(path, "rb", opener=regular_only) as file:
                text = file.read()
        except FileNotFoundError:
            return {}
    try:
        record = json.loads(text)
        if record["boot"] != running_boot_id():
            return {}
        return {_read(each): float(each["at"]) for each in record["incidents"]}
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{put_aside(path)} cannot be read: {error!r}", "report this bug") from error


def write_incidents(folder: Path, incidents: Mapping[Incident, float]) -> None:
    """Replace what is in the file; raises StorageError, and then it is as before."""
    if not incidents:
        remove(folder / _NAME)
        return
    written = [
        {
            "pci": incident.scope.pci,
            "span": (span := incident.scope.span) and (span.start, span.size),
            "xid": incident.xid,
            "reported_class": incident.reported_class,
            "at": at,
        }
        for incident, at in incidents.items()
    ]
    make_private_folder(folder)
    write_atomically(folder / _NAME, json.dumps({"boot": running_boot_id(), "incidents": written}).encode())


def _read(written: Mapping[str, Any]) -> Incident:
    span, reported_class = written["span"], written["reported_class"]
    if reported_class not in (None, *XID_CLASSES):
        raise ValueError(reported_class)
    region = Region(PciAddress.parse(written["pci"]), span and Placement(*span))
    return Incident(region, written["xid"], reported_class)
