"""Turns configurations of NVIDIA's device plugin into node configurations and DeviceClasses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import indent
from typing import Any

import yaml

from driver.devices.sharing import MOST_MPS_CLIENTS, Strategy
from driver.errors import ConfigError
from driver.kinds.sharing.field import MOST_SHARES
from gpuctl.importing.device_plugin import GPU, PREFIX, PluginConfig, Replicated
from gpuctl.importing.files import Imported

_MIG_RESOURCE = re.compile(
    r"nvidia\.com/mig-(?P<size>(?:[1-8]c\.)?[1-8]g\.[0-9]{1,4}gb)(?P<rest>[.-][a-z0-9.,]+)?", re.ASCII
)
_CUT = "has(gpu.migEnabled) && gpu.migEnabled"
_WIDE = 10_000

_ATTRIBUTES = "device.attributes['gpu.nvidia.com']"
_CAPACITIES = "device.capacity['gpu.nvidia.com']"
_SHARING: dict[Strategy, str] = {"TimeSlicing": "time-slicing", "MPS": "mps"}
_HEAD = """\
# The resources that pods asked NVIDIA's device plugin for, as DeviceClasses: apply this file once for the
# cluster, and run no device plugin that offers the same resources on the same nodes.
"""
_PROFILES = """\
# Partitions that are not shared have their resources (nvidia.com/mig-1g.10gb: 1) by the chart's value
# optInClasses.mig-profiles.
"""
_EITHER = """\
# {resource} means whole GPUs on some nodes and shares on others, as it did with the device plugin:
# a pod that asks for it cannot know which it gets. With renameByDefault: true shares have their own name.
"""
_ALIKE = """\
# {resource} also selects the shares that are {other} on other nodes: they are of the same number.
"""


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices behind a resource of the device plugin.

    ``form`` is ``gpu`` or ``mig``; ``profile`` is the profile of the partitions, None for all. ``strategy``
    is None for devices that are not shared, else each has so many ``shares``. ``gpus`` are the indexes and
    UUIDs of the GPUs, empty for all.
    """

    form: str
    strategy: Strategy | None = None
    profile: str | None = None
    shares: int = 0
    gpus: tuple[str, ...] = ()

    def resembles(self, other: Devices) -> bool:
        """Whether a device can be one of both as far as form, strategy and profile go."""
        same = (self.form, self.strategy) == (other.form, other.strategy)
        return same and (self.profile == other.profile or None in (self.profile, other.profile))

    def is_elsewhere(self, other: Devices) -> bool:
        """Whether its GPUs are surely others: an index cannot be compared with a UUID."""
        both = (*self.gpus, *other.gpus)
        is_alike = len({gpu.isdecimal() for gpu in both}) == 1 and bool(self.gpus and other.gpus)
        return is_alike and set(self.gpus).isdisjoint(other.gpus)


@dataclass(frozen=True, slots=True)
class ImportedPlugin(Imported):
    """A configuration with the extended resources that it offers, and the devices that pods get for them."""

    resources: tuple[tuple[str, Devices], ...]


def imported(name: str, config: PluginConfig, source: str) -> ImportedPlugin:
    """A configuration of the device plugin as a node configuration; ``source`` is its file, for a comment."""
    lost = list(config.lost)
    usable = [one for one in config.resources if _is_of(config, one, lost)]
    gpus = [one for one in usable if one.resource == GPU]
    partitions = [one for one in usable if one.resource != GPU]
    rules: list[dict[str, Any]] = []
    resources: list[tuple[str, Devices]] = []
    if config.mig_strategy == "single":
        rules.append(_cut_rule(config, gpus, lost))
        shares = rules[-1].get("shared", {}).get("shares", 0)
        resources += [(one.offered_as, Devices("mig", config.strategy, shares=shares)) for one in gpus] or [
            (GPU, Devices("mig"))
        ]
    elif config.mig_strategy == "mixed":
        rules.append(_cut_rule(config, partitions, lost))
        shares = rules[-1].get("shared", {}).get("shares", 0)
        resources += [
            (one.offered_as, Devices("mig", config.strategy, profile_of(one.resource), shares))
            for one in partitions
        ]
    for one in gpus:
        rule = _gpu_rule(config, one, lost)
        if rule is not None:
            rules.append(rule)
            listed = range(one.devices) if isinstance(one.devices, int) else one.devices or ()
            named = tuple(gpu for gpu in map(str, listed) if gpu.isdecimal() or gpu.startswith("GPU-"))
            shared = Devices("gpu", config.strategy, None, rule["shared"]["shares"], named)
            resources.append((one.offered_as, shared))
    if all(one.devices is not None for one in gpus):
        rules.append({"offer": "whole", "mig": "off"})
        resources.append((GPU, Devices("gpu")))
    lines = [
        f"# {name}: made from the configuration of NVIDIA's device plugin in {source}",
        f"# for the nodes with the label nvidia.com/device-plugin.config={name}, if nodes choose by it",
    ]
    document = yaml.safe_dump({"version": "v1", "rules": rules}, sort_keys=False, width=_WIDE)
    text = "\n".join([*lines, document])
    return ImportedPlugin(name, text, tuple(dict.fromkeys(lost)), tuple(dict.fromkeys(resources)))


def profile_of(resource: str) -> str | None:
    """The profile in the name of a resource, where a ``.`` replaces the ``+``; None if it names none."""
    match = _MIG_RESOURCE.fullmatch(resource)
    if match is None:
        return None
    rest = match["rest"] or ""
    return match["size"] + (f"+{rest[1:]}" if rest.startswith(".") else rest)


def _is_of(config: PluginConfig, one: Replicated, lost: list[str]) -> bool:
    """Whether a node with this migStrategy offers the resource at all."""
    if one.resource == GPU:
        return True
    if profile_of(one.resource) is None:
        lost.append(
            f"{one.path}.name: {one.resource} is not a resource of the device plugin, and is left out"
        )
        return False
    if config.mig_strategy != "mixed":
        lost.append(
            f"{one.path}.name: left out, because migStrategy {config.mig_strategy} has no {one.resource}"
        )
        return False
    return True


def _shares(config: PluginConfig, entries: Iterable[Replicated], lost: list[str]) -> dict[str, Any]:
    """The field ``shared`` of a rule for these entries; the entry with the fewest shares counts."""
    entries = list(entries)
    shares = min(one.replicas for one in entries)
    if any(one.replicas != shares for one in entries):
        lost.append(
            f"{entries[0].path.rpartition('[')[0]}: all partitions of a GPU have the same number "
            f"of shares; they get the lowest, {shares}"
        )
    most = MOST_MPS_CLIENTS if config.strategy == "MPS" else MOST_SHARES
    if shares > most:
        lost.append(
            f"{entries[0].path}.replicas: {config.strategy} has at most {most} shares, so {most} are made"
        )
    return {"strategy": config.strategy, "shares": min(shares, most)}


def _cut_rule(config: PluginConfig, entries: list[Replicated], lost: list[str]) -> dict[str, Any]:
    """The rule for GPUs in MIG mode, whose partitions an admin goes on making."""
    rule: dict[str, Any] = {"when": _CUT, "offer": "partitions", "mig": "static"}
    if not entries:
        return rule
    lost.extend(
        f"{one.path}.devices: partitions cannot be chosen one by one: all are shared"
        for one in entries
        if one.devices is not None
    )
    if config.mig_strategy == "mixed":
        where = entries[0].path.rpartition("[")[0]
        lost.append(
            f"{where}: partitions of all profiles are shared, and only the named profiles are resources"
        )
    return {**rule, "shared": _shares(config, entries, lost)}


def _gpu_rule(config: PluginConfig, one: Replicated, lost: list[str]) -> dict[str, Any] | None:
    """The rule for GPUs that are shared; None if the entry names no GPU."""
    shared = {"offer": "shared", "mig": "off", "shared": _shares(config, [one], lost)}
    if one.devices is None:
        return shared
    if isinstance(one.devices, int):
        return {"when": f"gpu.index < {one.devices}", **shared}
    indexes = [int(device) for device in one.devices if device.isdecimal()]
    uuids = [device for device in one.devices if device.startswith("GPU-")]
    if len(indexes) + len(uuids) < len(one.devices) and config.mig_strategy != "single":
        lost.append(f"{one.path}.devices: partitions are not GPUs, and are left out")
    named = [f"gpu.index in {json.dumps(indexes)}"] if indexes else []
    named += [f"gpu.uuid in {json.dumps(uuids)}"] if uuids else []
    return {"when": " || ".join(named), **shared} if named else None


def device_classes(found: Iterable[ImportedPlugin], *, mixed: bool) -> str:
    """One class for each resource of these configurations, as YAML documents.

    The same resource may mean different devices on different nodes; its class selects all of them. ``mixed``:
    some nodes offer partitions by profile. Raises ConfigError for resources whose devices nothing tells
    apart.
    """
    by_resource: _ByResource = {}
    for index, one in enumerate(found):
        for resource, devices in one.resources:
            by_resource.setdefault(resource, []).append((index, devices))
    documents = (_device_class(resource, by_resource) for resource in sorted(by_resource))
    return _HEAD + _PROFILES * mixed + "---\n" + "---\n".join(documents)


_ByResource = dict[str, list[tuple[int, Devices]]]
"""The devices behind each resource, with the number of the configuration that shares them."""


def _told_apart(
    resource: str, config: int, one: Devices, by_resource: _ByResource, alike: set[str]
) -> list[str]:
    """The conditions that the devices of a resource meet, and those of others do not.

    Resources of other nodes whose devices meet them all the same are added to ``alike``.
    """
    rivals = [
        (name, where, other)
        for name, found in by_resource.items()
        for where, other in found
        if name != resource and one.resembles(other)
    ]
    conditions = _conditions(one)
    if any(other.shares != one.shares for _, _, other in rivals):
        shares = f"{_CAPACITIES}.shares.compareTo(quantity('{one.shares}')) == 0"
        conditions += [f"'shares' in {_CAPACITIES}", shares]
    for name, where, other in rivals:
        if other.shares != one.shares:
            continue
        if one.is_elsewhere(other):
            of_gpus = "index" if one.gpus[0].isdecimal() else "uuid"
            values = [int(gpu) if of_gpus == "index" else gpu for gpu in one.gpus]
            conditions += [f"'{of_gpus}' in {_ATTRIBUTES}", f"{_ATTRIBUTES}.{of_gpus} in {values}"]
        elif where == config:
            raise ConfigError(
                f"{' and '.join(sorted((resource, name)))} stand for shares that nothing tells apart, so "
                "pods would get either",
                "give them different replicas, or list other GPUs for each, all by index or all by UUID",
            )
        else:
            alike.add(name)
    return list(dict.fromkeys(conditions))


def _device_class(resource: str, by_resource: _ByResource) -> str:
    alike: set[str] = set()
    devices = by_resource[resource]
    conditions = [_told_apart(resource, config, one, by_resource, alike) for config, one in devices]
    alternatives = " ||\n".join(sorted({" &&\n".join(one) for one in conditions}))
    expression = f"device.driver == 'gpu.nvidia.com' &&\n'type' in {_ATTRIBUTES} && (\n{alternatives})"
    shared = {one.strategy is not None for _, one in devices}
    head = _EITHER.format(resource=resource) if len(shared) > 1 else ""
    head += "".join(_ALIKE.format(resource=resource, other=other) for other in sorted(alike))
    return f"""\
{head}apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: {resource.removeprefix(PREFIX)}
spec:
  extendedResourceName: {resource}
  selectors:
    - cel:
        expression: >-
{indent(expression, " " * 10)}
"""


def _conditions(devices: Devices) -> list[str]:
    """The CEL conditions that only these devices meet."""
    # CEL fails on an attribute that a device lacks, and a failing selector stops the scheduler for the pod.
    if devices.strategy is None:
        found = [f"{_ATTRIBUTES}.type == '{devices.form}'"]
    else:
        found = [f"{_ATTRIBUTES}.type == 'shared'", *_is("sharing", _SHARING[devices.strategy])]
        if devices.form == "gpu":
            return [*found, f"!('profile' in {_ATTRIBUTES})"]
    if devices.profile is not None:
        return [*found, *_is("profile", devices.profile)]
    return [*found, f"'profile' in {_ATTRIBUTES}"] if devices.form == "mig" else found


def _is(attribute: str, value: str) -> list[str]:
    return [f"'{attribute}' in {_ATTRIBUTES}", f"{_ATTRIBUTES}.{attribute} == '{value}'"]
