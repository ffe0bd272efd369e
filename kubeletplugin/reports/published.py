"""Remembers what this node's ResourceSlices say about each device: its GPU, its memory, its attributes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from driver.devices.device import Taint
from driver.devices.sharing import MEMORY
from driver.errors import ApiError
from driver.health.health_rules import HealthRules
from driver.health.judge import incidents_of, verdicts_of
from driver.health.verdict import Health, health_of
from driver.kinds.registry import KINDS
from driver.kube.client import KubeClient
from driver.kube.paths import RESOURCE_SLICES
from driver.kube.reflector import NODE_PAGE_SIZE, Reflector, Selection
from driver.process.log import get_logger
from kubernetes_rules.quantity import parse_quantity

_log = get_logger(__name__)

_HEALTHY = Health("Healthy")
_RULES = HealthRules()


@dataclass(frozen=True, slots=True)
class _Device:
    """What the slices say about a device, None or empty for what they have never said."""

    uuid: str | None = None
    memory: int | None = None
    # Kept as text, which takes a tenth of the memory of the objects that are decoded from it.
    attributes: str = "{}"
    faults: Health = _HEALTHY
    # The NVLink clique of several nodes, empty if its GPU is in none now.
    clique: str = ""


_UNSEEN = _Device()


class PublishedDevices:
    """The UUID, memory, attributes and faults of each published device, from the node's slices."""

    # A device that is no longer published keeps its last values. The kubelet deletes the node's slices
    # whenever it starts, and a claim that was allocated before may be prepared meanwhile.

    def __init__(self) -> None:
        self._devices: dict[str, _Device] = {}
        self._on_fault: Callable[[], None] = lambda: None

    def on_fault(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when the faults of a device have changed."""
        self._on_fault = listener

    def health_of(self, device: str) -> Health:
        """The health of the device by the faults in its taints, which only the controller can see."""
        return self._devices.get(device, _UNSEEN).faults

    def uuid_of(self, device: str) -> str | None:
        """The last published UUID of the device's GPU, for a partition its parent's; None if never seen."""
        return self._devices.get(device, _UNSEEN).uuid

    def memory_of(self, device: str) -> int | None:
        """The last published memory of the device in bytes; None if never seen."""
        return self._devices.get(device, _UNSEEN).memory

    def attributes_of(self, device: str) -> dict[str, Any]:
        """The last published attributes of the device, in the form of the API; empty if never seen."""
        attributes: dict[str, Any] = json.loads(self._devices.get(device, _UNSEEN).attributes)
        return attributes

    def clique(self) -> str | None:
        """The NVLink clique of the node's GPUs; None if they are in none, or in several."""
        found = {one.clique for one in self._devices.values() if one.clique}
        return found.pop() if len(found) == 1 else None

    def take(self, kind: str, stored: Mapping[str, Any]) -> None:
        """Take over one event about a ResourceSlice; parts that cannot be read are skipped."""
        # The kubelet deletes all slices when it starts: that says nothing about their devices.
        if kind == "DELETED":
            return
        found = {str(each["name"]): each for each in stored.get("spec", {}).get("devices") or ()}
        before = {name: self._devices.get(name, _UNSEEN) for name in found}
        now = {name: _read(before[name], name, device) for name, device in found.items()}
        # One step, so that no lock is needed: other threads read single devices.
        self._devices.update(now)
        if any(now[name].faults != before[name].faults for name in found):
            self._on_fault()


def _read(before: _Device, name: str, device: Mapping[str, Any]) -> _Device:
    """What is known of a device; what its slice does not say stays."""
    attributes = device.get("attributes")
    board = _board(attributes or {})
    memory = _memory(device.get("capacity") or {})
    return _Device(
        str(board) if board else before.uuid,
        before.memory if memory is None else memory,
        json.dumps(attributes, separators=(",", ":")) if isinstance(attributes, dict) else before.attributes,
        _faults(name, device.get("taints") or ()),
        str((attributes or {}).get("fabricClique", {}).get("string") or ""),
    )


def _faults(device: str, taints: Sequence[Mapping[str, Any]]) -> Health:
    """The health by the taints of faults that NVML reported once, to the controller."""
    name = KINDS.parse(device) if taints else None
    if name is None or not name.regions:
        return _HEALTHY
    incidents = incidents_of(
        name.regions[0],
        [Taint(str(each.get("key")), each.get("value") or "", each.get("effect", "None")) for each in taints],
    )
    return health_of([verdict for each in incidents for verdict in verdicts_of(each, _RULES)])


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
