"""What Karpenter has to be told about the nodes of an instance type before the first of them exists.

Karpenter's provider for a cloud has a ``DynamicResources`` for each instance type. The keys are the names of
the Go fields, which have no others: sigs.k8s.io/karpenter v1.15.0, pkg/cloudprovider/dynamicresources.go.
Attributes, capacities and counters are written as in resource.k8s.io/v1.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from gpuctl.cli.output import some_of

Object = dict[str, Any]

OWN_OF_A_NODE = frozenset(
    {
        *("uuid", "parentUUID", "resource.kubernetes.io/pciBusID", "parentPCIBusID", "iommuGroup"),
        *("nvlinkDomain", "nvlinkMesh", "fabricClique"),
    }
)
"""Attributes whose values each node has of its own; of those of NVLink, a PCI address or a fabric is a part.

Everything else follows from the machine, its NVIDIA driver and the node configuration.
"""

_DEVICE_FIELDS = {
    "name": "Name",
    "attributes": "Attributes",
    "capacity": "Capacity",
    "allowMultipleAllocations": "AllowMultipleAllocations",
    "consumesCounters": "ConsumesCounters",
}
"""The fields of a device that Karpenter has a place for; there is none for taints."""

_SHOWN_DEVICES = 8


def karpenter_lines(slices: Iterable[Object]) -> Iterator[str]:
    """The ``DynamicResources`` as YAML, below comments on what Karpenter will get wrong with it."""
    import yaml

    stored = list(slices)
    tainted = list(_tainted(stored))
    if tainted:
        yield "# Karpenter does not see device taints, and expects devices to be free that a new node taints:"
        yield from (f"#   {taint} on {some_of(devices, _SHOWN_DEVICES)}" for taint, devices in tainted)
    yield yaml.safe_dump(dynamic_resources(stored), sort_keys=False).rstrip("\n")


def dynamic_resources(slices: Iterable[Object]) -> Object:
    """The ``DynamicResources`` of an instance type whose nodes publish these slices.

    Attributes in ``OWN_OF_A_NODE`` are left out. The devices that share the value of one are bound to each
    other, so that ``matchAttribute`` holds for them; Karpenter ignores a binding of a single device.
    """
    stored = list(slices)
    return {
        "ResourceSliceTemplates": [_template(one["spec"]) for one in stored],
        "AttributeBindings": [
            {"Attribute": attribute, "Devices": devices}
            for (attribute, _), devices in _sharing(stored).items()
            if len(devices) > 1
        ],
    }


def _template(spec: Object) -> Object:
    found: Object = {"Driver": spec["driver"], "Pool": {"Name": spec["pool"]["name"]}}
    if "sharedCounters" in spec:
        return found | {"SharedCounters": spec["sharedCounters"]}
    return found | {"Devices": [_device(device) for device in spec.get("devices", ())]}


def _device(device: Object) -> Object:
    known = {name: value for name, value in device.get("attributes", {}).items() if name not in OWN_OF_A_NODE}
    shown = {**device, "attributes": known}
    return {field: shown[name] for name, field in _DEVICE_FIELDS.items() if shown.get(name)}


def _sharing(slices: Iterable[Object]) -> dict[tuple[str, str], list[Object]]:
    """The devices by each attribute that only a node knows and its value."""
    found: dict[tuple[str, str], list[Object]] = {}
    for spec in (one["spec"] for one in slices):
        for device in spec.get("devices", ()):
            place = {"Driver": spec["driver"], "Pool": spec["pool"]["name"], "Device": device["name"]}
            for name, value in device.get("attributes", {}).items():
                if name in OWN_OF_A_NODE:
                    qualified = name if "/" in name else f"{spec['driver']}/{name}"
                    found.setdefault((qualified, str(value)), []).append(dict(place))
    return dict(sorted(found.items()))


def _tainted(slices: Iterable[Object]) -> Iterator[tuple[str, list[str]]]:
    """Each taint as kubectl writes it, with the devices that have it."""
    found: dict[str, list[str]] = {}
    for device in (device for one in slices for device in one["spec"].get("devices", ())):
        for taint in device.get("taints", ()):
            value = f"={taint['value']}" if taint.get("value") else ""
            found.setdefault(f"{taint['key']}{value}:{taint['effect']}", []).append(device["name"])
    yield from found.items()
