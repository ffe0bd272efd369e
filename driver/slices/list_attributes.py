"""Attributes that become lists of values if the node configuration says ``listAttributes``. Pure.

Only slices have the lists: everything else in the driver works with single values. Kubernetes stores lists
where the feature gate DRAListTypeAttributes is on, alpha in 1.37. A constraint then matches devices whose
lists have a value in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from driver.devices.device import AttributeValue, Device
from driver.devices.limits import MAX_VALUES

NearNodes = tuple[tuple[int, ...], ...]
"""Each NUMA node of the machine, followed by the nodes that are nearest to it."""

_NUMA, _MESH, _PEERS = "resource.kubernetes.io/numaNode", "nvlinkMesh", "nvlinkPeers"

_TYPES = "ints", "strings"


def with_lists(devices: Iterable[Device], near_nodes: NearNodes) -> list[Device]:
    """The devices with lists in place of single values.

    The NUMA node gets those nearest to it, and the text of NVLink peers becomes a list of their indexes. A
    mesh is followed by one value for each NVLink into another mesh, which both of its ends have. A list for
    which a device has no room stays a single value.
    """
    listed = list(devices)
    near = {nodes[0]: nodes for nodes in near_nodes}
    linked = {str(one.attributes.get("index")): one for one in listed if _PEERS in one.attributes}
    found = []
    for device in listed:
        attributes = dict(device.attributes)
        room = MAX_VALUES - len(attributes)
        for name, values in _lists(device, near, linked):
            if len(values) - 1 <= room:
                room -= len(values) - 1
                attributes[name] = values
        found.append(replace(device, attributes=attributes))
    return found


def _lists(
    device: Device, near: Mapping[int, tuple[int, ...]], linked: Mapping[str, Device]
) -> Iterator[tuple[str, tuple[int, ...] | tuple[str, ...]]]:
    node, mesh = device.attributes.get(_NUMA), device.attributes.get(_MESH)
    if isinstance(node, int):
        yield _NUMA, near.get(node, (node,))
    indexes = [one for one in str(device.attributes.get(_PEERS, "")).split(",") if one.isdecimal()]
    if isinstance(mesh, str):
        others = (linked[index] for index in indexes if index in linked)
        yield _MESH, (mesh, *(_link(device, one) for one in others if one.attributes.get(_MESH) != mesh))
    if indexes:
        yield _PEERS, tuple(map(int, indexes))


def _link(one: Device, other: Device) -> str:
    """The name of the NVLinks between two GPUs, the same from both ends."""
    ends = (str(end.pci).replace(":", "-").replace(".", "-") for end in (one, other))
    return "-".join(("nvlink", *sorted(ends)))


def single_value(name: str, values: list[Any]) -> AttributeValue:
    """What stands for a list where lists are not published: the value from which ``with_lists`` made it."""
    value: AttributeValue = ",".join(map(str, values)) if name == _PEERS else values[0]
    return value


def list_of(attribute: Mapping[str, Any]) -> list[Any]:
    """The values of a stored attribute that is a list, empty if it is none."""
    return next((list(attribute[one]) for one in _TYPES if attribute.get(one)), [])


def has_lists(spec: Mapping[str, Any]) -> bool:
    """Whether a device of the spec of a slice has an attribute that is a list."""
    return any(list_of(value) for device in spec.get("devices") or [] for value in _attributes(device))


def without_lists(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec without all attributes that are lists."""
    if not has_lists(spec):
        return spec
    devices = [
        {
            **device,
            "attributes": {name: value for name, value in device["attributes"].items() if not list_of(value)},
        }
        for device in spec["devices"]
    ]
    return {**spec, "devices": devices}


def _attributes(device: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    return (device.get("attributes") or {}).values()
