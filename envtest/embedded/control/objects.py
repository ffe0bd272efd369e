"""Reads and writes the objects of the API server for the cluster's own loops, as a client would."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from driver.errors import DriverError
from driver.process.log import get_logger
from envtest.embedded.api.defaults import now
from envtest.embedded.api.requests import parse_request
from envtest.embedded.api.server import EmbeddedApiServer
from envtest.embedded.api.statuses import Refused

Object = dict[str, Any]

NOT_FOUND, CONFLICT = 404, 409

_log = get_logger(__name__)


class ApiDown(DriverError):
    """The API server is stopped: nothing can be read or written until it is started again."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API, and where its objects are; cluster-scoped ones have the namespace ''."""

    group: str
    name: str

    @property
    def collection(self) -> tuple[str, str]:
        """What the store calls it."""
        return self.group, self.name

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of the collection, of an object, or of a subresource of it."""
        root = f"/apis/{self.group}/v1" if self.group else "/api/v1"
        parts = (["namespaces", namespace] if namespace else []) + [self.name, name, subresource]
        return "/".join([root, *(quote(part, safe="") for part in parts if part)])


PODS = Resource("", "pods")
NODES = Resource("", "nodes")
NAMESPACES = Resource("", "namespaces")
SERVICE_ACCOUNTS = Resource("", "serviceaccounts")
EVENTS = Resource("", "events")
CLAIMS = Resource("resource.k8s.io", "resourceclaims")
TEMPLATES = Resource("resource.k8s.io", "resourceclaimtemplates")
CLASSES = Resource("resource.k8s.io", "deviceclasses")
SLICES = Resource("resource.k8s.io", "resourceslices")
TAINT_RULES = Resource("resource.k8s.io", "devicetaintrules")
DEPLOYMENTS = Resource("apps", "deployments")
REPLICA_SETS = Resource("apps", "replicasets")
JOBS = Resource("batch", "jobs")
BUDGETS = Resource("policy", "poddisruptionbudgets")


class Objects:
    """Reads and writes as a client of the API server. Thread-safe.

    What is read must not be changed: a writer copies. Every method raises ApiDown while the API server
    is stopped, and every writing one raises Refused as the API answers it, a conflict (409) for example.
    """

    def __init__(self, server: EmbeddedApiServer) -> None:
        self._server = server
        self._posted: dict[tuple[str, str, str], tuple[str, str]] = {}

    def list(self, resource: Resource) -> list[Object]:
        """All objects of all namespaces."""
        self._check_up()
        return self._server.objects(resource.name, resource.group)

    def list_in(self, resource: Resource, namespace: str) -> Sequence[Object]:
        """All objects of one namespace, in no order."""
        self._check_up()
        return self._server.store.in_namespace(resource.collection, namespace)

    def find(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object, None when there is none."""
        self._check_up()
        return self._server.store.get(resource.collection, (namespace, name))

    def create(self, resource: Resource, namespace: str, item: Object) -> Object:
        """Create an object; the answer is what is stored."""
        self._check_up()
        return self._server.create(resource.path(namespace), item)

    def replace(self, resource: Resource, item: Object, subresource: str = "") -> Object:
        """Write the object, or a subresource of it, unless it changed since it was read."""
        self._check_up()
        metadata = item["metadata"]
        path = resource.path(metadata.get("namespace", ""), metadata["name"], subresource)
        return self._server.replace(path, item)

    def replace_status(self, resource: Resource, item: Object, status: Object) -> Object:
        """Write another status of the object, unless it changed since it was read."""
        return self.replace(resource, {**item, "status": status}, "status")

    def bind(self, pod: Object, node: str) -> None:
        """Give a pod its node, as schedulers do."""
        self._check_up()
        metadata = pod["metadata"]
        path = PODS.path(metadata["namespace"], metadata["name"], "binding")
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": metadata["name"]}}
        self._server.create(path, {**body, "target": target})

    def delete(
        self, resource: Resource, item: Object, grace_seconds: int | None = None, propagation: str = ""
    ) -> None:
        """Delete this object; it is no error if it is gone, or if another one has its name.

        ``propagation`` says what happens to the objects that it owns; each resource has a default.
        """
        self._check_up()
        metadata = item["metadata"]
        request = parse_request("DELETE", resource.path(metadata.get("namespace", ""), metadata["name"]))
        assert request is not None
        options: Object = {"preconditions": {"uid": metadata["uid"]}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        try:
            self._server.verbs.delete(request, options)
        except Refused as refused:
            if refused.code not in (NOT_FOUND, CONFLICT):
                raise

    def delete_collection(self, resource: Resource, field_selector: str) -> None:
        """Delete all objects that a field selector selects."""
        self._check_up()
        self._server.delete(f"{resource.path()}?fieldSelector={quote(field_selector)}")

    def post_event(
        self, kind: str, item: Object, event_type: str, reason: str, message: str, source: str
    ) -> None:
        """Post an event about an object, or count it when the same was posted before.

        An event that the server refuses, as in a deleted namespace, is lost, as with Kubernetes' recorders.
        """
        self._check_up()
        try:
            self._post_event(kind, item, event_type, reason, message, source)
        except Refused as refused:
            _log.info("event refused", reason=reason, object=item["metadata"]["name"], error=str(refused))

    def _post_event(
        self, kind: str, item: Object, event_type: str, reason: str, message: str, source: str
    ) -> None:
        metadata = item["metadata"]
        namespace = metadata.get("namespace", "default")
        same = (metadata["uid"], reason, message)
        known = self.find(EVENTS, *self._posted[same]) if same in self._posted else None
        if known is not None:
            count = int(known.get("count", 1)) + 1
            self.replace(EVENTS, {**known, "count": count, "lastTimestamp": now()})
            return
        reference = {"kind": kind, "apiVersion": item.get("apiVersion", "v1")}
        reference |= {key: metadata[key] for key in ("name", "namespace", "uid") if key in metadata}
        body: Object = {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": f"{metadata['name']}.{secrets.token_hex(8)}", "namespace": namespace},
            "involvedObject": reference,
            "type": event_type,
            "reason": reason,
            "message": message,
            "source": {"component": source},
            "reportingComponent": source,
            "firstTimestamp": now(),
            "lastTimestamp": now(),
            "count": 1,
        }
        self._posted[same] = (namespace, body["metadata"]["name"])
        self.create(EVENTS, namespace, body)

    def _check_up(self) -> None:
        if not self._server.running:
            raise ApiDown("the API server is stopped", "start it")


def uid_of(item: Mapping[str, Any]) -> str:
    """The object's UID."""
    return str(item["metadata"]["uid"])


def is_deleted(item: Mapping[str, Any]) -> bool:
    """Whether somebody asked for the object's deletion."""
    return "deletionTimestamp" in item["metadata"]


def is_terminal(pod: Mapping[str, Any]) -> bool:
    """Whether all containers of a pod have ended for good."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
