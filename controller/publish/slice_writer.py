"""Writes single ResourceSlices, and refuses an API server that stores something else than it was sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from controller.observe.node_events import NodeEvents
from controller.publish.slice_diff import Create, Update, generate_name
from driver.errors import ConfigError
from driver.event_reasons import EventReason
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

_ASK_AGAIN_SECONDS = 900.0
"""The time until a server that dropped a field is asked whether it stores it now."""


class FieldsDropped(ConfigError):
    """The API server stores slices without some of their fields, so nothing may be published."""


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
        self._reported: set[str] = set()
        self._now = now
        # A slice of which the server dropped fields, and the error that says so.
        self._dropped: tuple[Mapping[str, Any], FieldsDropped] | None = None
        self._ask_at = 0.0

    def check_server(self) -> None:
        """Raise FieldsDropped if the API server has dropped fields; asks it again after 15 minutes."""
        if self._dropped is None:
            return
        spec, error = self._dropped
        if self._now() < self._ask_at:
            raise error
        # By a dry run: a slice without its counters must not exist even for a moment.
        body = {**_HEAD, "metadata": {"generateName": self._generate_name(0)}, "spec": spec}
        self._compare(0, spec, self._client.create(RESOURCE_SLICES, body, {"dryRun": "All"}))
        self._dropped = None
        self._reported.discard(_message(error))
        _log.info("the API server now stores the fields that it dropped before")

    def _generate_name(self, index: int) -> str:
        return generate_name(index, self._driver, self._node)

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
                    "generateName": self._generate_name(create.index),
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
        """Raise FieldsDropped if the server stored something else than it was sent."""
        if same_spec(sent, stored["spec"]):
            return
        fields = sorted(_missing_fields(sent, stored["spec"]))
        gates = sorted({_GATES[field] for field in fields if field in _GATES})
        error = FieldsDropped(
            f"the API server stored slice {index} of this node without its "
            f"{', '.join(fields) or 'content'}, so nothing is published",
            f"enable the feature gate {', '.join(gates)} of the API server" if gates else "see its webhooks",
        )
        self._dropped, self._ask_at = (sent, error), self._now() + _ASK_AGAIN_SECONDS
        self._report(EventReason.SLICE_FIELDS_DROPPED, _message(error))
        raise error

    def _report(self, reason: EventReason, message: str) -> None:
        """Log and post a message the first time that it occurs."""
        if message in self._reported:
            return
        self._reported.add(message)
        _log.warning("slice problem", reason=reason.word, problem=message)
        self._events.post(reason, message)


def _message(error: FieldsDropped) -> str:
    return f"{error.what}: {error.way_out}"


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
