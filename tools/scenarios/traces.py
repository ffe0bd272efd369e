"""What a scenario has to leave as it was: objects, the nodes' devices, and files of claims."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driver.devices.names import DRIVER_NAME
from envtest.client import paths
from envtest.client.api import ApiClient
from gpuctl.demo.driver_node import DRIVER_NAMESPACE, DriverNode
from gpuctl.demo.journal_files import holding
from tools.scenarios.places.projection import NAME

Object = dict[str, Any]

GONE_SECONDS = 30.0
"""How long deleted objects may take to disappear: claims follow their pods, and devices their claims."""
# The first and the longest pause between two readings, each of which lists every kind of object.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 1.0

# These appear and disappear by themselves, or repeat what is compared in another object.
_NOT_COMPARED = frozenset(
    {"events", "leases", "resourceslices", "endpoints", "endpointslices", "componentstatuses"}
)
# A controller makes these in each namespace, some time after it was made.
_OF_EACH_NAMESPACE = frozenset({("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")})
_COMPARED = ("spec", "data")
# The first claim for a virtual machine changes this for good: the kernel modules that it loads stay loaded.
_STAYS_CHANGED = frozenset({"iommuFDEnabled"})


@dataclass(frozen=True, slots=True)
class Traces:
    """The state of a cluster: the compared part of each object, by ``kind namespace/name``, and each device.

    ``held`` are the files of claims on nodes: CDI specs, and journal entries that hold devices. They may
    exist longer than a pod, which can be gone from the API while its kubelet still unprepares claims.
    """

    objects: Mapping[str, Object]
    devices: Mapping[str, Object]
    held: frozenset[str] = frozenset()


def traces(api: ApiClient, drivers: Sequence[DriverNode] = ()) -> Traces:
    """The state of a cluster with these nodes now."""
    objects = {
        _name(resource, stored): _content(stored)
        for resource, path in _collections(api)
        for stored in api.list_objects(path)
        if (resource, stored["metadata"]["name"]) not in _OF_EACH_NAMESPACE
    }
    devices = dict(_devices(api.list_objects(paths.resource_slice())))
    return Traces(objects, devices, frozenset(name for driver in drivers for name in _held(driver)))


def wait_as_before(
    api: ApiClient,
    before: Traces,
    drivers: Sequence[DriverNode] = (),
    gone_seconds: float = GONE_SECONDS,
) -> list[str]:
    """Wait until a cluster is as before; returns the differences, in words, if that takes too long."""
    deadline, pause_seconds = time.monotonic() + gone_seconds, _FIRST_PAUSE_SECONDS
    while found := changes(before, traces(api, drivers)):
        if time.monotonic() > deadline:
            return found
        time.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
    return []


def changes(before: Traces, after: Traces) -> list[str]:
    """The differences, a sentence for each."""
    config = f"configmaps {DRIVER_NAMESPACE}/{NAME}"
    sentences = [
        "the node configuration is another one" if name == config else f"{name} {how}"
        for name, how in _differences(before.objects, after.objects)
    ]
    sentences += [f"device {name} {how}" for name, how in _differences(before.devices, after.devices)]
    return sentences + [f"{name} is left over" for name in sorted(after.held - before.held)]


def _differences(before: Mapping[str, Object], after: Mapping[str, Object]) -> Iterator[tuple[str, str]]:
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            yield name, "is left over"
        elif name not in after:
            yield name, "is gone"
        elif before[name] != after[name]:
            yield name, f"has changed: {'; '.join(_changed(before[name], after[name]))}"


def _changed(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """A sentence for each value that differs, with its path."""
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        yield f"{at} was {json.dumps(before)} and is {json.dumps(after)}"
        return
    for key in sorted(before.keys() | after.keys()):
        if before.get(key) != after.get(key):
            yield from _changed(before.get(key), after.get(key), f"{at}.{key}" if at else key)


def _collections(api: ApiClient) -> Iterator[tuple[str, str]]:
    """The name and path of each resource that the server lists."""
    groups = api.get("/apis")["groups"]
    roots = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    for root in roots:
        for entry in api.get(root)["resources"]:
            # A name with a slash is a subresource, such as pods/status.
            if "list" in entry["verbs"] and "/" not in entry["name"] and entry["name"] not in _NOT_COMPARED:
                yield entry["name"], f"{root}/{entry['name']}"


def _name(resource: str, stored: Object) -> str:
    metadata = stored["metadata"]
    return f"{resource} {'/'.join(filter(None, (metadata.get('namespace'), metadata['name'])))}"


def _content(stored: Object) -> Object:
    """The part of an object that people write, without that which the cluster writes."""
    said = {key: _by_people(stored[key]) for key in _COMPARED if stored.get(key)}
    said = {key: value for key, value in said.items() if value}
    return {**said, "labels": stored["metadata"].get("labels") or {}}


def _by_people(part: Any) -> Any:
    """A part of an object without the taints that Kubernetes itself sets on nodes and removes."""
    if not isinstance(part, Mapping) or "taints" not in part:
        return part
    taints = [taint for taint in part["taints"] if not taint["key"].startswith("node.kubernetes.io/")]
    return {
        **{key: value for key, value in part.items() if key != "taints"},
        **({"taints": taints} if taints else {}),
    }


def _held(driver: DriverNode) -> Iterator[str]:
    """The files of claims on a node."""
    for name in holding(driver.journal_dir):
        yield f"journal entry {name} of {driver.node.name}"
    for file in driver.node.cdi_dir.glob("*.json"):
        yield f"CDI spec {file.name} of {driver.node.name}"


def _devices(slices: list[Object]) -> Iterator[tuple[str, Object]]:
    """This driver's devices by name, without the times of their taints and attributes that stay changed."""
    for stored in slices:
        if stored["spec"]["driver"] != DRIVER_NAME:
            continue
        for device in stored["spec"].get("devices") or ():
            taints = [
                {key: value for key, value in taint.items() if key != "timeAdded"}
                for taint in device.get("taints") or ()
            ]
            attributes = {
                name: value
                for name, value in device.get("attributes", {}).items()
                if name not in _STAYS_CHANGED
            }
            name = f"{stored['spec']['pool']['name']}/{device['name']}"
            yield name, {**device, "taints": taints, "attributes": attributes}
