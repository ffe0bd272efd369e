"""Keeps the names of NVLink islands and meshes while GPUs join and leave them.

An island is named after its first GPU. That GPU leaves it when it gets its first partition, since in MIG mode
it may have no NVLinks, and when it fails. Without kept names the attributes of all other GPUs would then
change.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from driver.devices.device import Device
from driver.nvml.pci_address import PciAddress
from driver.policy.offers import Offers

GROUPS = ("nvlinkDomain", "nvlinkMesh")
"""The attributes whose values name a group of GPUs."""

_Names = dict["PciAddress", str]

Islands = Mapping[str, _Names]
"""The last name of each GPU's group, by attribute; newer names replace stored ones."""


def with_kept_names(wanted: Offers, stored: Iterable[Device], last: Islands) -> tuple[Offers, Islands]:
    """The offers with kept names of groups, and the last names as they are now.

    A new group gets a name that no other group has.
    """
    devices, listed = wanted.devices, list(stored)
    islands: dict[str, _Names] = {}
    for attribute in GROUPS:
        before = last.get(attribute, {}) | _named(listed, attribute)
        now = _named(devices, attribute)
        names = renamed(now, before)
        islands[attribute] = before | {pci: names[name] for pci, name in now.items()}
        if any(name != given for name, given in names.items()):
            devices = tuple(_with_name(device, attribute, names) for device in devices)
    return wanted if devices == wanted.devices else replace(wanted, devices=devices), islands


def renamed(now: Mapping[PciAddress, str], last: Mapping[PciAddress, str]) -> dict[str, str]:
    """The kept name for each name that a group has now.

    A group gets the name that most of its members had. If two groups would get the same name, the one with
    more such members gets it, then the one with the lowest address.
    """
    groups: defaultdict[str, list[PciAddress]] = defaultdict(list)
    for pci, name in sorted(now.items()):
        groups[name].append(pci)
    claims = [
        (-count, members[0], name, former)
        for name, members in groups.items()
        for former, count in Counter(last[pci] for pci in members if pci in last).items()
    ]
    names: dict[str, str] = {}
    for _, _, name, former in sorted(claims):
        if name not in names and former not in names.values():
            names[name] = former
    return _apart({name: names.get(name, name) for name in groups}, groups)


def _apart(names: dict[str, str], groups: Mapping[str, list[PciAddress]]) -> dict[str, str]:
    """``names`` with a number behind the name of a new group if another group has that name already."""
    taken: set[str] = set()
    # Groups with a kept name come first, so that only new ones may get a number.
    for name in sorted(groups, key=lambda name: (names[name] == name, groups[name][0])):
        given, number = names[name], 1
        while given in taken:
            number += 1
            given = f"{names[name]}-{number}"
        taken.add(given)
        names[name] = given
    return names


def _named(devices: Iterable[Device], attribute: str) -> _Names:
    """The name of each GPU's group, from its devices."""
    return {
        device.pci: name
        for device in devices
        if device.pci is not None and isinstance(name := device.attributes.get(attribute), str)
    }


def _with_name(device: Device, attribute: str, names: Mapping[str, str]) -> Device:
    name = device.attributes.get(attribute)
    if not isinstance(name, str) or names.get(name, name) == name:
        return device
    return replace(device, attributes={**device.attributes, attribute: names[name]})
