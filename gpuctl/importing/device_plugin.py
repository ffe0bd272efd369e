"""Reads and checks the configuration files of NVIDIA's device plugin (``version: v1``).

version: v1
flags: {migStrategy: none}
sharing:
  timeSlicing:
    renameByDefault: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]

A file is such a configuration, or a ConfigMap with one below each key of its data; there a node's label
nvidia.com/device-plugin.config chooses one. The values of the plugin's chart have the same below
``config.map``, those of the GPU operator's below ``devicePlugin.config.data``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from driver.devices.sharing import Strategy
from gpuctl.importing.files import fields_are_right, read_text, read_wrapped, refuse, schema_of

MigStrategy = Literal["none", "single", "mixed"]

PREFIX = "nvidia.com/"
GPU = "nvidia.com/gpu"
_WHAT = "device plugin configuration"
_KEY = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Replicated:
    """A resource whose devices are shared by ``replicas`` containers each.

    ``resource`` is nvidia.com/gpu or nvidia.com/mig-1g.10gb, for example; ``offered_as`` is the name that
    pods ask for. ``devices`` is a number of GPUs, counted from the first, or the indexes and UUIDs of GPUs
    and partitions as they were written; None for all. ``path`` is the path of the field.
    """

    path: str
    resource: str
    replicas: int
    offered_as: str
    devices: int | tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """One configuration. ``lost`` says, with field paths, what of it has no equivalent here."""

    mig_strategy: MigStrategy = "none"
    strategy: Strategy | None = None
    resources: tuple[Replicated, ...] = ()
    lost: tuple[str, ...] = ()


def load_device_plugin(path: Path) -> dict[str, PluginConfig]:
    """The configurations of a file by name: a key of the ConfigMap, or the file's name without its ending.

    Raises ConfigError with all errors in the file, each with the path of its field.
    """
    errors: list[str] = []
    found: dict[str, PluginConfig] = {}
    place, document = read_wrapped(path, _WHAT, "config.map", "devicePlugin.config.data")
    for name, key, one in _documents(place, document, path.stem, errors):
        if name in found:
            errors.append(f"{key}: another key has the same configuration name {name}")
        found[name] = _configuration({} if one is None else one, key, errors)
    refuse(path, _WHAT, errors)
    return found


def _documents(place: str, data: Any, stem: str, errors: list[str]) -> Iterator[tuple[str, str, Any]]:
    """Each configuration with its name and its path; the path is empty if ``data`` is the configuration."""
    if not place:
        if not _KEY.fullmatch(stem):
            errors.append(f"the file's name {stem!r} cannot name a configuration: rename it")
        yield stem, "", data
        return
    if not isinstance(data, dict) or not data:
        errors.append(f"{place}: must be a mapping with at least one configuration")
        return
    for key, text in data.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key) or not isinstance(text, str):
            errors.append(
                f"{place}.{key}: must be the text of a configuration, under a name that a file can have"
            )
            continue
        yield (
            re.sub(r"\.(ya?ml|json)\Z", "", key),
            f"{place}.{key}",
            read_text(text, f"{place}.{key}", errors),
        )


def _configuration(document: Any, place: str, errors: list[str]) -> PluginConfig:
    if not fields_are_right("device-plugin", document, place, errors):
        return PluginConfig()
    path = f"{place}." if place else ""
    lost = list(_without_equivalent(document, schema_of("device-plugin"), path))
    strategy, resources = _sharing(document.get("sharing") or {}, f"{path}sharing", errors, lost)
    return PluginConfig(
        (document.get("flags") or {}).get("migStrategy", "none"), strategy, resources, tuple(lost)
    )


def _without_equivalent(value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """A sentence for each field of which the schema says that it has no equivalent."""
    for name, field in (schema.get("properties") or {}).items():
        if value.get(name) is None:
            continue
        if "instead" in field and value[name] not in field["harmless"]:
            yield f"{path}{name}: has no equivalent: {field['instead']}"
        elif "properties" in field:
            yield from _without_equivalent(value[name], field, f"{path}{name}.")


def _sharing(
    sharing: Mapping[str, Any], path: str, errors: list[str], lost: list[str]
) -> tuple[Strategy | None, tuple[Replicated, ...]]:
    """The strategy and its resources; if both strategies are given, MPS counts, as in the device plugin."""
    if "mps" in sharing and "timeSlicing" in sharing:
        lost.append(f"{path}.timeSlicing: has no effect next to mps, as in the device plugin")
    strategy: Strategy = "MPS" if "mps" in sharing else "TimeSlicing"
    path = f"{path}.{'mps' if strategy == 'MPS' else 'timeSlicing'}"
    used = sharing.get("mps") or sharing.get("timeSlicing")
    if used is None:
        return None, ()
    if used.get("failRequestsGreaterThanOne", strategy == "MPS"):
        unset = "" if "failRequestsGreaterThanOne" in used else " (the default of mps)"
        lost.append(
            f"{path}.failRequestsGreaterThanOne{unset}: a request for several shares is not refused: it gets "
            "shares of as many GPUs, or waits"
        )
    rename = used.get("renameByDefault", False)
    entries = [
        _resource(one, rename, f"{path}.resources[{index}]", lost)
        for index, one in enumerate(used["resources"])
    ]
    # NVIDIA's plugin ends with "number of replicas must be >= 2", but the meaning is clear.
    lost += [
        f"{one.path}.replicas: 1 shares nothing, and NVIDIA's device plugin refuses it: "
        f"{one.resource} is not shared"
        for one in entries
        if one.replicas == 1
    ]
    found = [one for one in entries if one.replicas > 1]
    for index, replicated in enumerate(found):
        rest = [other for other in found[index + 1 :] if other.resource == replicated.resource]
        if rest and not all(isinstance(other.devices, tuple) for other in (replicated, *rest)):
            errors.append(f"{replicated.path}.name: {replicated.resource} is listed more than once")
    return strategy, tuple(found)


def _resource(entry: Mapping[str, Any], rename: bool, path: str, lost: list[str]) -> Replicated:
    resource = _full_name(entry["name"])
    offered_as = f"{resource}.shared" if rename else resource
    if "rename" in entry:
        offered_as = _full_name(entry["rename"])
        lost.append(f"{path}.rename: the device plugin ignores it; here pods ask for {offered_as}")
    devices = entry.get("devices", "all")
    if devices != "all":
        lost.append(
            f"{path}.devices: the device plugin ignores it and shares all; here only these are shared"
        )
    named = (
        tuple(map(str, devices)) if isinstance(devices, list) else None if devices == "all" else int(devices)
    )
    return Replicated(path, resource, int(entry["replicas"]), offered_as, named)


def _full_name(text: str) -> str:
    """The name of a resource; like the device plugin, adds the prefix to a name without it."""
    return text if text.startswith(PREFIX) else PREFIX + text
