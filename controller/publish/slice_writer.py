"""Writes single ResourceSlices, and notices when the API server stores something else than it was sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from controller.observe.node_events import NodeEvents
from controller.publish.server_floor import ServerVersion, server_version
from controller.publish.slice_diff import Create, Update, generate_name
from driver.errors import ApiError, ConfigError
from driver.event_reasons import EventReason
from driver.kube.backoff import Backoff
from driver.kube.client import KubeClient
from driver.kube.errors import NotFound
from driver.kube.paths import NODES, RESOURCE_SLICES, object_path
from driver.process.log import get_logger
from driver.process.metrics import Metrics
from driver.slices.specs import Rejected, canonical_devices, same_spec

Object = dict[str, Any]

_log = get_logger(__name__)

_GATES = {
    "taints": "DRADeviceTaints",
    "consumesCounters": "DRAPartitionableDevices",
    "sharedCounters": "DRAPartitionableDevices",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "bindingConditions": "DRADeviceBindingConditions",
}
"""The feature gates of the API server without which it drops a field of a slice or of its devices."""

_HEAD = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}

_ASK_AGAIN_SECONDS = 60.0, 900.0
"""When a server that dropped a field is first asked whether it stores it now, and how seldom at last."""


class SliceWriter:
    """Creates, updates and deletes slices of one node and tells people what is wrong with them.

    A server drops fields of disabled feature gates silently. What it stored instead is remembered for
    each index and then counts as right, so that the same write is not repeated for ever; ``dropped``
    names all fields that were lost so, until ``ask_again`` finds that the server stores them now. All methods
    raise ApiError. Used by one thread.
    """

    def __init__(
        self,
        client: KubeClient,
        events: NodeEvents,
        metrics: Metrics,
        *,
        node: str,
        driver: str,
        on_node: Callable[[Object], None] = lambda _node: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._events = events
        self._metrics = metrics
        self._node, self._driver = node, driver
        self._on_node = on_node
        self._accepted: dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
        self._told: set[str] = set()
        self._now = now
        self._lost: dict[str, Mapping[str, Any]] = {}
        self._version: ServerVersion | None = None
        self._backoff = Backoff(*_ASK_AGAIN_SECONDS, jitter=lambda: 0.0)
        self._look_at = self._ask_at = 0.0

    @property
    def dropped(self) -> frozenset[str]:
        """The fields that the API server does not store, as far as it is known."""
        return frozenset(self._lost)

    def ask_again(self) -> None:
        """See whether the API server stores now what it once dropped, and then forget that it did not.

        A gate was turned on, or one of several servers was older than the others during an upgrade. It is
        asked as soon as it tells another version, and otherwise less and less often. It is asked by dry runs:
        a slice without its counters must not be there even for a moment.
        """
        now = self._now()
        if not self._lost or now < self._look_at:
            return
        self._look_at = now + _ASK_AGAIN_SECONDS[0]
        try:
            version = server_version(self._client)
            if version != self._version:
                self._backoff.reset()
            elif now < self._ask_at:
                return
            self._version, self._ask_at = version, now + self._backoff.next_seconds()
            still = {field for spec in self._lost.values() for field in _dropped(spec, self._try(spec))}
        except ApiError as error:
            _log.info("whether the API server stores what it dropped is not known", error=str(error))
            return
        if back := sorted(self._lost.keys() - still):
            _log.info("the API server stores fields that it dropped before", fields=back)
            for field in back:
                del self._lost[field]
            self._accepted.clear()
            self._told.clear()

    def _try(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the API server would store of a slice."""
        name = generate_name(0, self._driver, self._node)
        body = {**_HEAD, "metadata": {"generateName": name}, "spec": spec}
        stored: Mapping[str, Any] = self._client.create(RESOURCE_SLICES, body, {"dryRun": "All"})["spec"]
        return stored

    def owner(self) -> Object:
        """The reference to the Node that owns the slices, read afresh: a node may come back with another UID.

        ``on_node`` gets to see the Node. Raises ConfigError when there is no such node.
        """
        try:
            node = self._client.get(object_path(NODES, self._node))
        except NotFound as error:
            raise ConfigError(
                f"there is no node {self._node!r} in the cluster",
                "give --node-name the name that kubectl get nodes shows",
            ) from error
        self._events.uid = node["metadata"]["uid"]
        self._on_node(node)
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self._node,
            "uid": self._events.uid,
            "controller": True,
        }

    def same(self, index: int, wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
        """Whether ``stored`` is what was asked for, or what this server makes of it."""
        if same_spec(wanted, stored):
            return True
        asked, answered = self._accepted.get(index, ({}, {}))
        return same_spec(asked, wanted) and same_spec(answered, stored)

    def delete(self, item: Object) -> None:
        """Delete the slice if it is still as it was read; one that is gone already will do."""
        metadata = item["metadata"]
        try:
            self._client.delete(
                object_path(RESOURCE_SLICES, metadata["name"]),
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            )
        except NotFound:
            return
        self._metrics.slice_written("delete")

    def update(self, update: Update) -> Object:
        """Give the slice its spec unless it changed since it was read; the answer is what is stored."""
        path = object_path(RESOURCE_SLICES, update.stored["metadata"]["name"])
        stored = self._client.replace(path, {**update.stored, "spec": update.spec})
        self._metrics.slice_written("update")
        self._compare(update.index, update.spec, stored)
        return stored

    def create(self, create: Create, owner: Object) -> Object:
        """Create the slice; the answer is what is stored."""
        stored = self._client.create(
            RESOURCE_SLICES,
            {
                **_HEAD,
                "metadata": {
                    "generateName": generate_name(create.index, self._driver, self._node),
                    "ownerReferences": [owner],
                },
                "spec": create.spec,
            },
        )
        self._metrics.slice_written("create")
        self._compare(create.index, create.spec, stored)
        return stored

    def tell_rejected(self, rejected: Rejected) -> None:
        """Say once in the log, and as an event of the node, why a device is not published."""
        name, reasons = rejected.device.name, "; ".join(rejected.reasons)
        message = f"device {name} is not published, the API would refuse it: {reasons}"
        self._tell(EventReason.DEVICE_NOT_PUBLISHED, message)

    def _compare(self, index: int, sent: Mapping[str, Any], stored: Object) -> None:
        self._accepted.pop(index, None)
        if same_spec(sent, stored["spec"]):
            return
        self._accepted[index] = (sent, stored["spec"])
        fields = sorted(_missing_fields(sent, stored["spec"]))
        if not self._lost:
            self._look_at = self._now() + _ASK_AGAIN_SECONDS[0]
        self._lost |= dict.fromkeys(_dropped(sent, stored["spec"]), sent)
        gates = sorted({_GATES[field] for field in fields if field in _GATES})
        dropped = ", ".join(fields) or "something"
        way_out = f": enable the feature gate {', '.join(gates)} of the API server" if gates else ""
        self._tell(
            EventReason.SLICE_FIELDS_DROPPED,
            f"the API server stored slice {index} of this node without its {dropped}{way_out}",
        )

    def _tell(self, reason: EventReason, message: str) -> None:
        """Log and post an event, the first time that this is said."""
        if message in self._told:
            return
        self._told.add(message)
        _log.warning("slice problem", reason=reason.word, problem=message)
        self._events.post(reason, message)


def _missing_fields(sent: Mapping[str, Any], stored: Mapping[str, Any]) -> set[str]:
    """The fields of the slice, and of its devices, that were sent and are not stored as they were."""
    counters = (
        {"sharedCounters"} if sent.get("sharedCounters") and not stored.get("sharedCounters") else set()
    )
    kept = {device.get("name"): device for device in canonical_devices(stored)}
    return counters | {
        field
        for device in canonical_devices(sent)
        for field, value in device.items()
        if kept.get(device.get("name"), {}).get(field) != value
    }


def _dropped(sent: Mapping[str, Any], stored: Mapping[str, Any]) -> set[str]:
    """The missing fields that nothing of the slice has: others may only be written in another way."""
    there = {field for device in stored.get("devices") or [] for field, value in device.items() if value}
    there.update(field for field, value in stored.items() if value)
    return _missing_fields(sent, stored) - there
