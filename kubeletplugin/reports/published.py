"""Remembers what this node's ResourceSlices say about each device: its GPU, its memory, its attributes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from driver.devices.device import Taint
from driver.devices.sharing import MEMORY
from driver.errors import ApiError
from driver.health.health_rules import HealthRules
from driver.health.verdict import Health, health_of
from driver.health.xid_verdicts import incidents_of, verdicts_of
from driver.kinds.registry import KINDS
from driver.kube.client import KubeClient
from driver.kube.paths import RESOURCE_SLICES
from driver.kube.reflector import NODE_PAGE_SIZE, Reflector, Selection
from driver.process.log import get_logger
from kubernetes_rules.quantity import parse_quantity

_log = get_logger(__name__)

_HEALTHY = Health("Healthy")
_RULES = HealthRules()


class PublishedDevices:
    """The UUID, memory, attributes and faults of each published device, from the node's slices."""

    # A device that is no longer published keeps its last values. The kubelet deletes the node's slices
    # whenever it starts, and a claim that was allocated before may be prepared meanwhile.

    def __init__(self) -> None:
        self._uuids: dict[str, str] = {}
        self._memory: dict[str, int] = {}
        self._attributes: dict[str, str] = {}
        self._faults: dict[str, Health] = {}
        self._on_fault: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def on_fault(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when the faults of a device have changed."""
        self._on_fault = listener

    def health_of(self, device: str) -> Health:
        """The health of the device by the faults in its taints, which only the controller can see."""
        with self._lock:
            return self._faults.get(device, _HEALTHY)

    def uuid_of(self, device: str) -> str | None:
        """The last published UUID of the device's GPU, for a partition its parent's; None if never seen."""
        with self._lock:
            return self._uuids.get(device)

    def memory_of(self, device: str) -> int | None:
        """The last published memory of the device in bytes; None if never seen."""
        with self._lock:
            return self._memory.get(device)

    def attributes_of(self, device: str) -> dict[str, Any]:
        """The last published attributes of the device, in the form of the API; empty if never seen."""
        with self._lock:
            text = self._attributes.get(device)
        return {} if text is None else json.loads(text)

    def _take_faults(self, devices: Sequence[Mapping[str, Any]]) -> None:
        """Take over the faults of a slice's devices."""
        faults = {str(device["name"]): _faults(str(device["name"]), _taints(device)) for device in devices}
        with self._lock:
            changed = {
                name: health for name, health in faults.items() if self._faults.get(name, _HEALTHY) != health
            }
            self._faults |= changed
        if changed:
            self._on_fault()

    def take(self, kind: str, stored: Mapping[str, Any]) -> None:
        """Take over one event about a ResourceSlice; parts that cannot be read are skipped."""
        # The kubelet deletes all slices when it starts: that says nothing about their devices.
        if kind == "DELETED":
            return
        devices = stored.get("spec", {}).get("devices") or ()
        found = {
            str(device["name"]): str(uuid)
            for device in devices
            if (uuid := _board(device.get("attributes") or {}))
        }
        memory = {
            str(device["name"]): amount
            for device in devices
            if (amount := _memory(device.get("capacity") or {})) is not None
        }
        # Kept as text, which takes a tenth of the memory of the objects that are decoded from it.
        attributes = {
            str(device["name"]): json.dumps(decoded, separators=(",", ":"))
            for device in devices
            if isinstance(decoded := device.get("attributes"), dict)
        }
        with self._lock:
            self._attributes.update(attributes)
            self._uuids.update(found)
            self._memory.update(memory)
        self._take_faults(devices)


def _faults(device: str, taints: Sequence[Taint]) -> Health:
    """The health by the taints of faults that NVML reported once, to the controller."""
    name = KINDS.parse(device) if taints else None
    if name is None or not name.regions:
        return _HEALTHY
    incidents = incidents_of(name.regions[0], taints)
    return health_of([verdict for each in incidents for verdict in verdicts_of(each, _RULES)])


def _taints(device: Mapping[str, Any]) -> list[Taint]:
    return [
        Taint(str(one.get("key")), str(one.get("value") or ""), one.get("effect", "None"))
        for one in device.get("taints") or ()
    ]


def _board(attributes: Mapping[str, Any]) -> Any:
    """The UUID of the physical GPU: a partition has its parent's beside its own."""
    for name in ("parentUUID", "uuid"):
        if name in attributes:
            return attributes[name].get("string")
    return None


def _memory(capacity: Any) -> int | None:
    try:
        return int(parse_quantity(str(capacity[MEMORY]["value"])))
    except (KeyError, TypeError, ValueError):
        return None


def follow_slices(
    client: KubeClient, node: str, driver: str, published: PublishedDevices, stop: threading.Event
) -> Reflector:
    """A reflector that feeds ``published`` from the slices of this node and driver; it is not running yet."""
    fields = {"spec.nodeName": node, "spec.driver": driver}
    return Reflector(
        client,
        Selection(RESOURCE_SLICES, fields, {}, NODE_PAGE_SIZE),
        stop,
        on_event=published.take,
        on_failure=_log_failure,
    )


def _log_failure(error: ApiError, wait_seconds: float) -> None:
    _log.warning("cannot follow the slices", error=str(error), again_in_seconds=round(wait_seconds, 2))
