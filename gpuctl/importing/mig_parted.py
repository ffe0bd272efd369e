"""Reads the configuration files of NVIDIA's mig-parted (``version: v1``) as strictly as it does itself.

version: v1
mig-configs:
  all-1g.10gb:
  - device-filter: ["0x233010DE"]
    devices: all
    mig-enabled: true
    mig-devices: {1g.10gb: 7}

A file is one of these, or the ConfigMap with one below ``config.yaml`` that NVIDIA's MIG manager is given
(default-mig-parted-config of the GPU operator); there a node's label nvidia.com/mig.config chooses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from driver.errors import ConfigError
from driver.policy.strict_yaml import load_strictly

MOST_PARTITIONS = 16
_KEY = "config.yaml"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._+-]{0,98}[A-Za-z0-9])?", re.ASCII)
_DEVICE_ID = re.compile(r"0[xX][0-9A-Fa-f]{5,8}(:0[xX][0-9A-Fa-f]{1,8})?", re.ASCII)
_PROFILE = re.compile(r"(?:[1-8]c\.)?[1-8]g\.[0-9]{1,4}gb(?:[+-][A-Za-z][A-Za-z0-9.,]*)?", re.ASCII)
_FIELDS = ("device-filter", "devices", "mig-enabled", "mig-devices")


@dataclass(frozen=True, slots=True)
class Entry:
    """What one entry of a configuration does to the GPUs that it means.

    ``devices`` are indexes, None means all; ``device_ids`` narrow them down to models, as they were written,
    empty means all. ``profiles`` are the partitions with their numbers, none where MIG is off.
    """

    devices: tuple[int, ...] | None
    enabled: bool
    profiles: tuple[tuple[str, int], ...] = ()
    device_ids: tuple[str, ...] = ()

    def meets(self, other: Entry) -> bool:
        """Whether one GPU may be meant by both."""
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

    ``in_config_map`` says that nodes choose by a label, and that mig-parted itself cannot read the file.
    ``lost`` are the sentences on what else is in it.
    """

    configs: Mapping[str, tuple[Entry, ...]]
    in_config_map: bool = False
    lost: tuple[str, ...] = ()


def load_mig_parted(path: Path) -> MigPartedFile:
    """Read a file.

    Raises ConfigError with every error in the file, each with the path of its field.
    """
    try:
        document = load_strictly(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", "check its name") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no YAML: {error}", "correct it") from error
    errors: list[str] = []
    if isinstance(document, dict) and document.get("kind") == "ConfigMap":
        found = _config_map(document, errors)
    else:
        found = MigPartedFile(_document(document, errors))
    if errors:
        raise ConfigError(f"{path} is no configuration of mig-parted: " + "; ".join(errors), "correct it")
    return found


def _config_map(document: Mapping[str, Any], errors: list[str]) -> MigPartedFile:
    """The configurations below the key that the MIG manager reads; it reads no other."""
    data = document.get("data")
    text = data.get(_KEY) if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(text, str):
        errors.append(f"data.{_KEY}: is missing, though NVIDIA's MIG manager reads it")
        return MigPartedFile({})
    wrong: list[str] = []
    try:
        configs = _document(load_strictly(text), wrong)
    except yaml.YAMLError as error:
        configs, wrong = {}, [f"is no YAML: {error}"]
    errors += [f"data.{_KEY}: {one}" for one in wrong]
    lost = tuple(
        f"data.{key}: left out, since it is no configuration of mig-parted" for key in data if key != _KEY
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
        or any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in value)
    ):
        errors.append(f"{path}: must be all, or a list of indexes")
        return None
    if len(set(value)) < len(value):
        errors.append(f"{path}: an index stands more than once")
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
        errors.append(f"{path}: an id stands more than once")
    return tuple(ids)


def _profiles(
    entry: Mapping[str, Any], enabled: bool, path: str, errors: list[str]
) -> tuple[tuple[str, int], ...]:
    value = entry.get("mig-devices")
    if value is None:
        if enabled:
            errors.append(f"{path}: is missing, though mig-enabled is true")
        return ()
    if not isinstance(value, dict):
        errors.append(f"{path}: must be a mapping from profile to number")
        return ()
    if value and not enabled:
        errors.append(f"{path}: must be empty, since mig-enabled is false")
    before = len(errors)
    for name, count in value.items():
        if not isinstance(name, str) or not _PROFILE.fullmatch(name):
            errors.append(f"{path}.{name}: is no profile such as 1g.10gb+me")
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_PARTITIONS:
            errors.append(f"{path}.{name}: must be a number from 0 to {MOST_PARTITIONS}")
    if len(errors) > before:
        return ()
    if value and not 1 <= sum(value.values()) <= MOST_PARTITIONS:
        errors.append(f"{path}: must name 1 to {MOST_PARTITIONS} partitions")
    return tuple((name, count) for name, count in value.items() if count)
