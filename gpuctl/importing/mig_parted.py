"""Reads configurations of NVIDIA's mig-parted (``version: v1``), and turns them into node configurations.

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from driver.errors import ConfigError
from driver.hardware.functions import NVIDIA_VENDOR_ID
from driver.hardware.pci import PRODUCTS
from driver.policy.strict_yaml import load_strictly, load_wrapped

Mode = Literal["layout", "static"]

MOST_PARTITIONS = 16
_KEY = "config.yaml"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._+-]{0,98}[A-Za-z0-9])?", re.ASCII)
_DEVICE_ID = re.compile(r"0[xX][0-9A-Fa-f]{5,8}(:0[xX][0-9A-Fa-f]{1,8})?", re.ASCII)
_LISTED_PROFILE = re.compile(r"(?:[1-8]c\.)?[1-8]g\.[0-9]{1,4}gb(?:[+-][A-Za-z][A-Za-z0-9.,]*)?", re.ASCII)
ALONE = "correct it, or leave only the configuration in it, which begins with version: v1"
_FIELDS = ("device-filter", "devices", "mig-enabled", "mig-devices")

_PROFILE = re.compile(r"(?:(?P<compute>[1-8])c\.)?(?P<rest>(?P<slices>[1-8])g\..*)", re.ASCII)
_ATTRIBUTES = ("", "+me", "+me.all", "-me", "+gfx")
_WIDE = 10_000


@dataclass(frozen=True, slots=True)
class Entry:
    """What one entry of a configuration does to the GPUs that it applies to.

    ``devices`` are the indexes of the GPUs, None for all. ``device_ids`` restrict them to models, by the PCI
    ids as they were written; empty for all. ``profiles`` are the partitions and how many of each.
    """

    devices: tuple[int, ...] | None
    enabled: bool
    profiles: tuple[tuple[str, int], ...] = ()
    device_ids: tuple[str, ...] = ()

    def overlaps(self, other: Entry) -> bool:
        """Whether both may apply to the same GPU."""
        mine, theirs = self.devices, other.devices
        if mine is not None and theirs is not None and set(mine).isdisjoint(theirs):
            return False
        models, others = (
            {one.upper() for one in self.device_ids},
            {one.upper() for one in other.device_ids},
        )
        return not models or not others or not models.isdisjoint(others)


@dataclass(frozen=True, slots=True)
class MigPartedFile:
    """The configurations of a file by name, in its order.

    ``in_config_map``: the file is a ConfigMap, so that nodes choose by a label and mig-parted cannot read it.
    ``lost`` are sentences about the rest of the file.
    """

    configs: Mapping[str, tuple[Entry, ...]]
    in_config_map: bool = False
    lost: tuple[str, ...] = ()


def load_mig_parted(path: Path) -> MigPartedFile:
    """Read a file; raises ConfigError with all errors in it, each with the path of its field."""
    place, document = read_yaml(path, "migManager.config.data")
    errors: list[str] = []
    found = _config_map(place, document, errors) if place else MigPartedFile(_document(document, errors))
    if errors:
        raise ConfigError(f"{path} is not a mig-parted configuration: " + "; ".join(errors), ALONE)
    return found


def read_yaml(path: Path, *places: str) -> tuple[str, Any]:
    """The YAML document of a file and its path in it, as ``load_wrapped`` gives them; raises ConfigError."""
    try:
        return load_wrapped(path.read_bytes(), str(path), *places)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", "check its name") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}", "correct it") from error


def _config_map(place: str, data: Any, errors: list[str]) -> MigPartedFile:
    """The configurations below the only key that the MIG manager reads."""
    text = data.get(_KEY) if isinstance(data, dict) else None
    if not isinstance(text, str):
        errors.append(f"{place}.{_KEY}: is missing, but NVIDIA's MIG manager reads it")
        return MigPartedFile({})
    wrong: list[str] = []
    try:
        configs = _document(load_strictly(text), wrong)
    except yaml.YAMLError as error:
        configs, wrong = {}, [f"is not YAML: {error}"]
    errors += [f"{place}.{_KEY}: {one}" for one in wrong]
    lost = tuple(
        f"{place}.{key}: left out, because it is not a mig-parted configuration"
        for key in data
        if key != _KEY
    )
    return MigPartedFile(configs, in_config_map=True, lost=lost)


def _document(document: Any, errors: list[str]) -> dict[str, tuple[Entry, ...]]:
    if not isinstance(document, dict):
        errors.append("the document must be a mapping with version and mig-configs")
        return {}
    errors += [f"{key}: unknown field" for key in document if key not in ("version", "mig-configs")]
    if document.get("version") != "v1":
        errors.append("version: must be v1")
    configs = document.get("mig-configs")
    if not isinstance(configs, dict) or not configs:
        errors.append("mig-configs: must be a mapping with at least one configuration")
        return {}
    return {str(name): _config(str(name), entries, errors) for name, entries in configs.items()}


def _config(name: str, entries: Any, errors: list[str]) -> tuple[Entry, ...]:
    path = f"mig-configs.{name}"
    if not _NAME.fullmatch(name):
        errors.append(f"{path}: the name must be one that a file can have")
    if not isinstance(entries, list) or not entries:
        errors.append(f"{path}: must be a list with at least one entry")
        return ()
    return tuple(_entry(entry, f"{path}[{index}]", errors) for index, entry in enumerate(entries))


def _entry(entry: Any, path: str, errors: list[str]) -> Entry:
    if not isinstance(entry, dict):
        errors.append(f"{path}: must be a mapping with devices and mig-enabled")
        return Entry(None, enabled=False)
    errors += [f"{path}.{key}: unknown field" for key in entry if key not in _FIELDS]
    errors += [f"{path}.{key}: is missing" for key in ("devices", "mig-enabled") if key not in entry]
    enabled = entry.get("mig-enabled", False)
    if not isinstance(enabled, bool):
        errors.append(f"{path}.mig-enabled: must be true or false")
    return Entry(
        devices=_devices(entry.get("devices", "all"), f"{path}.devices", errors),
        enabled=enabled is True,
        profiles=_profiles(entry, enabled is True, f"{path}.mig-devices", errors),
        device_ids=_device_ids(entry.get("device-filter", []), f"{path}.device-filter", errors),
    )


def _devices(value: Any, path: str, errors: list[str]) -> tuple[int, ...] | None:
    if value == "all":
        return None
    if (
        not isinstance(value, list)
        or not value
        # In Python, and so for isinstance, true is an int.
        or any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in value)
    ):
        errors.append(f"{path}: must be all, or a list of indexes")
        return None
    if len(set(value)) < len(value):
        errors.append(f"{path}: an index is listed more than once")
    return tuple(value)


def _device_ids(value: Any, path: str, errors: list[str]) -> tuple[str, ...]:
    ids = [value] if isinstance(value, str) else value
    if not isinstance(ids, list) or not all(
        isinstance(one, str) and _DEVICE_ID.fullmatch(one) for one in ids
    ):
        errors.append(f'{path}: must be a PCI id in quotes such as "0x233010DE", or a list of them')
        return ()
    upper = [one.upper() for one in ids]
    if len(set(upper)) < len(upper):
        errors.append(f"{path}: an id is listed more than once")
    return tuple(ids)


def _profiles(
    entry: Mapping[str, Any], enabled: bool, path: str, errors: list[str]
) -> tuple[tuple[str, int], ...]:
    value = entry.get("mig-devices")
    if value is None:
        if enabled:
            errors.append(f"{path}: is missing, although mig-enabled is true")
        return ()
    if not isinstance(value, dict):
        errors.append(f"{path}: must be a mapping from profile to number")
        return ()
    if value and not enabled:
        errors.append(f"{path}: must be empty, because mig-enabled is false")
    before = len(errors)
    for name, count in value.items():
        if not isinstance(name, str) or not _LISTED_PROFILE.fullmatch(name):
            errors.append(f"{path}.{name}: is not a profile such as 1g.10gb+me")
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_PARTITIONS:
            errors.append(f"{path}.{name}: must be a number from 0 to {MOST_PARTITIONS}")
    if len(errors) > before:
        return ()
    if value and not 1 <= sum(value.values()) <= MOST_PARTITIONS:
        errors.append(f"{path}: must name 1 to {MOST_PARTITIONS} partitions")
    return tuple((name, count) for name, count in value.items() if count)


@dataclass(frozen=True, slots=True)
class Imported:
    """One configuration as the YAML of a node configuration; ``lost`` says what has no equivalent."""

    name: str
    text: str
    lost: tuple[str, ...]


def imported(
    name: str, entries: Sequence[Entry], mode: Mode, source: str, *, in_config_map: bool = False
) -> Imported:
    """A configuration of mig-parted as a node configuration.

    With ``layout`` the driver makes the partitions; with ``static`` somebody makes them with mig-parted as
    before, and comments say which. ``source`` is the file, for the comments. ``in_config_map``: NVIDIA's MIG
    manager reads the file.
    """
    lost: list[str] = []
    ordered = list(enumerate(entries))
    if any(one.overlaps(other) for index, one in ordered for other in entries[index + 1 :]):
        # For mig-parted the last entry that applies to a GPU counts, for us the first rule.
        ordered.reverse()
    rules = [_rule(f"{name}[{index}]", entry, mode, lost) for index, entry in ordered]
    lines = [f"# {name}: made from the configuration of mig-parted in {source}"]
    if in_config_map:
        lines.append(f"# for the nodes with the label nvidia.com/mig.config={name}")
    elif mode == "static" and any(entry.enabled for entry in entries):
        lines.append(f"# on the node, before: nvidia-mig-parted apply -f {source} -c {name}")
    lines += ["version: v1", "rules:" if any(rule.fields for rule in rules) else "rules: []"]
    return Imported(name, "\n".join([*lines, *map(str, rules), ""]), tuple(lost))


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule with a comment above it; without ``fields`` the comment alone."""

    comment: str
    fields: dict[str, Any]

    def __str__(self) -> str:
        rule = yaml.safe_dump([self.fields], sort_keys=False, width=_WIDE) if self.fields else ""
        return (f"# {self.comment}\n" * bool(self.comment) + rule).rstrip("\n")


def _rule(where: str, entry: Entry, mode: Mode, lost: list[str]) -> _Rule:
    """The rule for one entry; it hides the GPUs if their partitions have no equivalent."""
    when = _when(where, entry, lost)
    if when is None:
        return _Rule(f"{where}: none of its models is known", {})
    selects = {"when": when} if when else {}
    if mode == "static" and entry.enabled:
        partitions = ", ".join(f"{count} x {name}" for name, count in entry.profiles) or "none"
        return _Rule(f"partitions made with mig-parted: {partitions}", {**selects, "mig": "static"})
    mig = _mig(where, entry, lost)
    if mig is None:
        return _Rule(f"{where}: its partitions have no equivalent", {**selects, "offer": "hidden"})
    return _Rule("", {**selects, "mig": mig})


def _when(where: str, entry: Entry, lost: list[str]) -> str | None:
    """The CEL expression that selects the GPUs, empty for all; None if none of the models is known."""
    parts = []
    if entry.devices is not None:
        parts.append(f"gpu.index in [{', '.join(map(str, entry.devices))}]")
    if entry.device_ids:
        names: dict[str, None] = {}
        for device_id in entry.device_ids:
            known = products_of(device_id)
            if not known:
                lost.append(f"{where}.device-filter: no product name is known for {device_id}")
            names |= dict.fromkeys(known)
        if not names:
            return None
        parts.append(f"gpu.productName in {json.dumps(list(names))}")
    return " && ".join(parts)


def products_of(device_id: str) -> tuple[str, ...]:
    """The product names of a PCI id; none for an unknown id, and for one with a subsystem (a board)."""
    if ":" in device_id:
        return ()
    # The device is in the upper half, the vendor in the lower: 0x233010DE.
    number = int(device_id, 16)
    return PRODUCTS.get(number >> 16, ()) if number & 0xFFFF == NVIDIA_VENDOR_ID else ()


def _mig(where: str, entry: Entry, lost: list[str]) -> Any:
    """The field ``mig`` of the rule; None if a profile has no equivalent."""
    if not entry.enabled:
        return "off"
    if not entry.profiles:
        return {"layout": "all-enabled"}
    layout: dict[str, int] = {}
    for name, count in entry.profiles:
        profile = whole_instance(name)
        if profile is None:
            what = "is a part of a GPU instance, or has an unknown attribute"
            lost.append(f"{where}.mig-devices: {name} {what}; its GPUs are hidden")
            return None
        layout[profile] = layout.get(profile, 0) + count
    return {"layout": layout}


def whole_instance(name: str) -> str | None:
    """A profile as NVML names the GPU instance; None for a part of one, and for an unknown attribute."""
    # 1c.2g.10gb is a compute instance with one of the two slices of its GPU instance.
    match = _PROFILE.fullmatch(name)
    if match is None or (match["compute"] or match["slices"]) != match["slices"]:
        return None
    size, sign, attribute = re.fullmatch(r"([^+-]*)([+-]?)(.*)", match["rest"]).groups()  # type: ignore[union-attr]  # matches all
    return size + sign + attribute if sign + attribute in _ATTRIBUTES else None
