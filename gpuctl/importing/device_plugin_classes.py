"""Writes the DeviceClasses that stand for the extended resources of NVIDIA's device plugin."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import indent

from driver.devices.sharing import Strategy
from gpuctl.importing.device_plugin import PREFIX
from gpuctl.importing.device_plugin_import import Devices, Imported

_ATTRIBUTES = "device.attributes['gpu.nvidia.com']"
_SHARING: dict[Strategy, str] = {"TimeSlicing": "time-slicing", "MPS": "mps"}
_HEAD = """\
# The resources that pods asked NVIDIA's device plugin for, as DeviceClasses: apply this file once for the
# cluster, and run no device plugin that offers the same resources on the same nodes.
"""
_PROFILES = """\
# Partitions that are not shared have their resources (nvidia.com/mig-1g.10gb: 1) in
# deviceclasses/opt-in/mig-profiles.yaml.
"""
_EITHER = """\
# {resource} stands for whole GPUs on some nodes and for shares on others, as it did with the device
# plugin: who asks for it cannot know which it gets. With renameByDefault: true shares have their own name.
"""


def device_classes(found: Iterable[Imported], *, mixed: bool) -> str:
    """One class for each resource of these configurations, as YAML documents.

    A resource may stand for other devices on other nodes: its class takes any of them. ``mixed`` is whether
    some nodes offer partitions by profile.
    """
    by_resource: dict[str, dict[Devices, None]] = {}
    for one in found:
        for resource, devices in one.resources:
            by_resource.setdefault(resource, {})[devices] = None
    documents = (_device_class(resource, list(devices)) for resource, devices in sorted(by_resource.items()))
    return _HEAD + _PROFILES * mixed + "---\n" + "---\n".join(documents)


def _device_class(resource: str, devices: list[Devices]) -> str:
    alternatives = " ||\n".join(sorted(" &&\n".join(_conditions(one)) for one in devices))
    expression = f"device.driver == 'gpu.nvidia.com' &&\n'type' in {_ATTRIBUTES} && (\n{alternatives})"
    shared = {one.strategy is not None for one in devices}
    head = _EITHER.format(resource=resource) if len(shared) > 1 else ""
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
    """What holds for these devices and for no others; nothing fails where an attribute is missing."""
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
