"""Turns configurations of NVIDIA's mig-parted (``version: v1``) into node configurations.

version: v1
mig-configs:
  all-1g.10gb:
  - device-filter: ["0x233010DE"]
    devices: all
    mig-enabled: true
    mig-devices: {1g.10gb: 7}

A file is such a configuration, or the ConfigMap of NVIDIA's MIG manager, which has one below ``config.yaml``
(default-mig-parted-config of the GPU operator); there a node's label nvidia.com/mig.config chooses. The
operator's chart has the same in its values, below ``migManager.config.data``. Files are checked as strictly
as mig-parted does it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from driver.hardware.functions import NVIDIA_VENDOR_ID
from driver.hardware.pci import PRODUCTS
from gpuctl.importing.files import Imported, fields_are_right, read_text, read_wrapped, refuse

Mode = Literal["layout", "static"]
Entry = Mapping[str, Any]
"""What one entry of a configuration does to the GPUs that it applies to."""

MOST_PARTITIONS = 16
_WHAT = "mig-parted configuration"
_KEY = "config.yaml"
_PROFILE = re.compile(
    r"(?:(?P<compute>[1-8])c\.)?(?P<instance>(?P<slices>[1-8])g\.[^+-]*(?P<more>.*))", re.ASCII
)
_ATTRIBUTES = ("", "+me", "+me.all", "-me", "+gfx")
_WIDE = 10_000


def import_mig_parted(path: Path, mode: Mode) -> tuple[list[Imported], list[str]]:
    """The configurations of a file, and sentences about the rest of it.

    With ``layout`` the driver makes the partitions; with ``static`` somebody makes them with mig-parted as
    before, and comments say which. Raises ConfigError with all errors in the file, each with the path of its
    field.
    """
    errors: list[str] = []
    lost: list[str] = []
    place, document = read_wrapped(path, _WHAT, "migManager.config.data")
    if in_config_map := bool(place):
        # NVIDIA's MIG manager reads this key alone.
        data = document if isinstance(document, dict) else {}
        lost = [
            f"{place}.{key}: left out, because it is not a mig-parted configuration"
            for key in data
            if key != _KEY
        ]
        place = f"{place}.{_KEY}"
        if not isinstance(data.get(_KEY), str):
            errors.append(f"{place}: is missing, but NVIDIA's MIG manager reads it")
        else:
            document = read_text(data[_KEY], place, errors)
    configs: Mapping[str, list[Entry]] = {}
    if not errors and fields_are_right("mig-parted", document, place, errors):
        configs = document["mig-configs"]
        errors += [f"{place}.{one}" if place else one for one in _wrong_numbers(configs)]
    refuse(path, _WHAT, errors)
    source = " ".join(str(path).split())  # it is written into comments, which end with the line
    return [_imported(name, entries, mode, source, in_config_map) for name, entries in configs.items()], lost


def _wrong_numbers(configs: Mapping[str, list[Entry]]) -> Iterator[str]:
    """What the schema cannot say: the sum of the partitions, and ids that differ only by case."""
    for name, entries in configs.items():
        for index, entry in enumerate(entries):
            place = f"mig-configs.{name}[{index}]"
            profiles = entry.get("mig-devices") or {}
            if profiles and not 1 <= sum(profiles.values()) <= MOST_PARTITIONS:
                yield f"{place}.mig-devices: must name 1 to {MOST_PARTITIONS} partitions"
            ids = [one.upper() for one in _device_ids(entry)]
            if len(set(ids)) < len(ids):
                yield f"{place}.device-filter: an id is listed more than once"


def _device_ids(entry: Entry) -> list[str]:
    ids: str | list[str] = entry.get("device-filter", [])
    return [ids] if isinstance(ids, str) else ids


def _profiles(entry: Entry) -> dict[str, int]:
    return {name: count for name, count in (entry.get("mig-devices") or {}).items() if count}


def _overlap(one: Entry, other: Entry) -> bool:
    """Whether both may apply to the same GPU."""
    for mine, theirs in (
        (one["devices"], other["devices"]),
        ([i.upper() for i in _device_ids(one)] or "all", [i.upper() for i in _device_ids(other)] or "all"),
    ):
        if mine != "all" and theirs != "all" and set(mine).isdisjoint(theirs):
            return False
    return True


def _imported(name: str, entries: list[Entry], mode: Mode, source: str, in_config_map: bool) -> Imported:
    lost: list[str] = []
    ordered = list(enumerate(entries))
    if any(_overlap(one, other) for index, one in ordered for other in entries[index + 1 :]):
        # For mig-parted the last entry that applies to a GPU counts, for us the first rule.
        ordered.reverse()
    rules = [_rule(f"{name}[{index}]", entry, mode, lost) for index, entry in ordered]
    lines = [f"# {name}: made from the configuration of mig-parted in {source}"]
    if in_config_map:
        lines.append(f"# for the nodes with the label nvidia.com/mig.config={name}")
    elif mode == "static" and any(entry["mig-enabled"] for entry in entries):
        lines.append(f"# on the node, before: nvidia-mig-parted apply -f {source} -c {name}")
    lines += ["version: v1", "rules:" if any(fields for _, fields in rules) else "rules: []"]
    for comment, fields in rules:
        lines += [f"# {comment}"] if comment else []
        lines += [yaml.safe_dump([fields], sort_keys=False, width=_WIDE).rstrip("\n")] if fields else []
    return Imported(name, "\n".join([*lines, ""]), tuple(lost))


def _rule(where: str, entry: Entry, mode: Mode, lost: list[str]) -> tuple[str, dict[str, Any]]:
    """A comment and the rule for one entry, of which either may be empty.

    The rule hides the GPUs if their partitions have no equivalent.
    """
    when = _when(where, entry, lost)
    if when is None:
        return f"{where}: none of its models is known", {}
    selects = {"when": when} if when else {}
    if not entry["mig-enabled"]:
        return "", {**selects, "mig": "off"}
    profiles = _profiles(entry)
    if mode == "static":
        partitions = ", ".join(f"{count} x {name}" for name, count in profiles.items()) or "none"
        return f"partitions made with mig-parted: {partitions}", {**selects, "mig": "static"}
    layout: dict[str, int] = {}
    for name, count in profiles.items():
        instance = _whole_instance(name)
        if instance is None:
            what = "is a part of a GPU instance, or has an unknown attribute"
            lost.append(f"{where}.mig-devices: {name} {what}; its GPUs are hidden")
            return f"{where}: its partitions have no equivalent", {**selects, "offer": "hidden"}
        layout[instance] = layout.get(instance, 0) + count
    return "", {**selects, "mig": {"layout": layout or "all-enabled"}}


def _when(where: str, entry: Entry, lost: list[str]) -> str | None:
    """The CEL expression that selects the GPUs, empty for all; None if none of the models is known."""
    parts = []
    if entry["devices"] != "all":
        parts.append(f"gpu.index in [{', '.join(str(int(index)) for index in entry['devices'])}]")
    if ids := _device_ids(entry):
        names: dict[str, None] = {}
        for device_id in ids:
            known = _products_of(device_id)
            if not known:
                lost.append(f"{where}.device-filter: no product name is known for {device_id}")
            names |= dict.fromkeys(known)
        if not names:
            return None
        parts.append(f"gpu.productName in {json.dumps(list(names))}")
    return " && ".join(parts)


def _products_of(device_id: str) -> tuple[str, ...]:
    """The product names of a PCI id; none for an unknown id, and for one with a subsystem (a board)."""
    if ":" in device_id:
        return ()
    # The device is in the upper half, the vendor in the lower: 0x233010DE.
    number = int(device_id, 16)
    return PRODUCTS.get(number >> 16, ()) if number & 0xFFFF == NVIDIA_VENDOR_ID else ()


def _whole_instance(name: str) -> str | None:
    """A profile as NVML names the GPU instance; None for a part of one, and for an unknown attribute."""
    # 1c.2g.10gb is a compute instance with one of the two slices of its GPU instance.
    match = _PROFILE.fullmatch(name)
    if match is None or (match["compute"] or match["slices"]) != match["slices"]:
        return None
    return match["instance"] if match["more"] in _ATTRIBUTES else None
