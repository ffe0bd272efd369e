"""Writes single ResourceSlices, and notices if the API server stores something else than it was sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from controller.observe.node_events import NodeEvents
from controller.publish.server_version import ServerVersion, server_version
from controller.publish.slice_diff import Create, Update, generate_name
from driver.errors import ApiError, ConfigError
from driver.event_reasons import EventReason
from driver.kube.backoff import Backoff
from driver.kube.client import PATIENT_SECONDS, KubeClient
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
"""Fields of a slice or its devices, each with the feature gate without which the API server drops it."""

_HEAD = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}

_ASK_AGAIN_SECONDS = 60.0, 900.0
"""The first and the longest wait before a server that dropped a field is asked whether it stores it now."""


class SliceWriter:
    """Creates, updates and deletes slices of one node, and reports what is wrong with them.

    All methods may raise ApiError. Used by one thread.
    """

    # An API server silently drops the fields of disabled feature gates. So every answer is compared with what
    # was sent.

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
        # By index, what was sent and what the server stored instead. That counts as right from then on;
        # otherwise the same write would be repeated for ever.
        self._accepted: dict[int, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}
        self._reported: set[str] = set()
        self._now = now
        # Each dropped field, with a spec that has it.
        self._lost: dict[str, Mapping[str, Any]] = {}
        self._version: ServerVersion | None = None
        self._backoff = Backoff(*_ASK_AGAIN_SECONDS, jitter=lambda: 0.0)
        self._ask_version_at = self._ask_at = 0.0

    @property
    def dropped(self) -> frozenset[str]:
        """The fields that the API server does not store, as far as that is known."""
        return frozenset(self._lost)

    def ask_again(self) -> None:
        """Find out whether the API server now stores what it dropped before.

        A gate may have been turned on, or one of several servers was older than the others during an upgrade.
        """
        now = self._now()
        if not self._lost or now < self._ask_version_at:
            return
        self._ask_version_at = now + _ASK_AGAIN_SECONDS[0]
        try:
            version = server_version(self._client)
            # Another version is a good reason to ask at once; otherwise it is asked less and less often.
            if version != self._version:
                self._backoff.reset()
            elif now < self._ask_at:
                return
            self._version, self._ask_at = version, now + self._backoff.next_seconds()
            still = {field for spec in self._lost.values() for field in _dropped(spec, self._dry_run(spec))}
        except ApiError as error:
            _log.info("cannot check whether the API server stores the dropped fields now", error=str(error))
            return
        if back := sorted(self._lost.keys() - still):
            _log.info("the API server now stores fields that it dropped before", fields=back)
            for field in back:
                del self._lost[field]
            self._accepted.clear()
            self._reported.clear()

    def _lose(self, fields: Mapping[str, Mapping[str, Any]]) -> None:
        """Remember what the API server does not store, and when to ask for it again."""
        if not self._lost:
            self._ask_version_at = self._now() + _ASK_AGAIN_SECONDS[0]
        self._lost |= fields

    def _dry_run(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the API server would store of a slice."""
        # By a dry run: a slice without its counters must not exist even for a moment.
        name = generate_name(0, self._driver, self._node)
        body = {**_HEAD, "metadata": {"generateName": name}, "spec": spec}
        stored: Mapping[str, Any] = self._client.create(RESOURCE_SLICES, body, {"dryRun": "All"})["spec"]
        return stored

    def owner(self) -> Object:
        """The owner reference to the Node; ``on_node`` gets the Node. Raises ConfigError if there is none."""
        # Read each time: a node that was deleted and comes back has another UID, and the garbage collector
        # deletes an object whose owner's UID does not exist.
        try:
            node = self._client.get(object_path(NODES, self._node), timeout_seconds=PATIENT_SECONDS)
        except NotFound as error:
            raise ConfigError(
                f"the node {self._node!r} does not exist in the cluster",
                "set --node-name to a name that kubectl get nodes shows",
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
        """Whether ``stored`` means the same as ``wanted``, or is what this server makes of it."""
        if same_spec(wanted, stored):
            return True
        sent, answered = self._accepted.get(index, ({}, {}))
        return same_spec(sent, wanted) and same_spec(answered, stored)

    def delete(self, item: Object) -> None:
        """Delete the slice if it has not changed since it was read; it is no error if it is gone."""
        metadata = item["metadata"]
        try:
            # With UID and resourceVersion as preconditions: another controller may have written it meanwhile.
            self._client.delete(
                object_path(RESOURCE_SLICES, metadata["name"]),
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                timeout_seconds=PATIENT_SECONDS,
            )
        except NotFound:
            return
        self._metrics.slice_written("delete")

    def update(self, update: Update) -> Object:
        """Give the slice its spec unless it has changed since it was read; returns what is stored."""
        path = object_path(RESOURCE_SLICES, update.stored["metadata"]["name"])
        # The body has the resourceVersion that was read, so the server answers a conflict if it has changed.
        body = {**update.stored, "spec": update.spec}
        stored = self._client.replace(path, body, timeout_seconds=PATIENT_SECONDS)
        self._metrics.slice_written("update")
        self._compare(update.index, update.spec, stored)
        return stored

    def create(self, create: Create, owner: Object) -> Object:
        """Create the slice; returns what is stored."""
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
            timeout_seconds=PATIENT_SECONDS,
        )
        self._metrics.slice_written("create")
        self._compare(create.index, create.spec, stored)
        return stored

    def report_rejected(self, rejected: Rejected) -> None:
        """Report once, in the log and as an event of the Node, why a device is not published."""
        name, reasons = rejected.device.name, "; ".join(rejected.reasons)
        message = f"device {name} is not published, because the API would refuse it: {reasons}"
        self._report(EventReason.DEVICE_NOT_PUBLISHED, message)

    def _compare(self, index: int, sent: Mapping[str, Any], stored: Object) -> None:
        self._accepted.pop(index, None)
        if same_spec(sent, stored["spec"]):
            return
        self._accepted[index] = (sent, stored["spec"])
        fields = sorted(_missing_fields(sent, stored["spec"]))
        dropped = _dropped(sent, stored["spec"])
        if dropped:
            self._lose(dict.fromkeys(dropped, sent))
        gates = sorted({_GATES[field] for field in fields if field in _GATES})
        left_out = ", ".join(fields) or "something"
        way_out = f": enable the feature gate {', '.join(gates)} of the API server" if gates else ""
        self._report(
            EventReason.SLICE_FIELDS_DROPPED,
            f"the API server stored slice {index} of this node without its {left_out}{way_out}",
        )

    def _report(self, reason: EventReason, message: str) -> None:
        """Log and post a message the first time that it occurs."""
        if message in self._reported:
            return
        self._reported.add(message)
        _log.warning("slice problem", reason=reason.word, problem=message)
        self._events.post(reason, message)


def _missing_fields(sent: Mapping[str, Any], stored: Mapping[str, Any]) -> set[str]:
    """The fields of the slice and of its devices that are not stored as they were sent."""
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
    """The missing fields that neither the stored slice nor any of its devices has."""
    # A field that some device has is stored by this server; on another device it was only changed.
    there = {field for device in stored.get("devices") or [] for field, value in device.items() if value}
    there.update(field for field, value in stored.items() if value)
    return _missing_fields(sent, stored) - there
