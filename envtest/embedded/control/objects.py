"""Reads and writes objects for the cluster's own loops, as a client of the API server would."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from envtest.embedded.api.defaults import now
from envtest.embedded.api.requests import parse_request
from envtest.embedded.api.statuses import Refused
from envtest.embedded.api.verbs import resource_of
from envtest.embedded.control import kinds
from envtest.embedded.server import EmbeddedApiServer

Object = dict[str, Any]

NOT_FOUND, CONFLICT = 404, 409

_log = logging.getLogger(__name__)


class ApiDown(Exception):
    """The API server is stopped: nothing can be read or written until it is started again."""


class Objects:
    """Reads and writes as a client of the API server. Thread-safe.

    What is read must not be changed: a writer copies. Every method raises ApiDown while the API server
    is stopped, and every writing one raises Refused as the API answers it, a conflict (409) for example.
    """

    def __init__(self, server: EmbeddedApiServer) -> None:
        self._server = server
        self._posted: dict[tuple[str, str, str], tuple[str, str]] = {}

    @property
    def kubernetes(self) -> tuple[int, int]:
        """The version of Kubernetes that the server has."""
        return 1, int(self._server.minor.rstrip("+"))

    def list(self, kind: kinds.Kind) -> list[Object]:
        """All objects of all namespaces."""
        self._check_up()
        return self._server.objects(kind.name, kind.group)

    def list_in(self, kind: kinds.Kind, namespace: str) -> Sequence[Object]:
        """All objects of one namespace, in no order."""
        self._check_up()
        return self._server.store.in_namespace(kind.collection, namespace)

    def find(self, kind: kinds.Kind, namespace: str, name: str) -> Object | None:
        """The object, None when there is none."""
        self._check_up()
        return self._server.store.get(kind.collection, (namespace, name))

    def create(self, kind: kinds.Kind, namespace: str, item: Object) -> Object:
        """Create an object; returns the stored one."""
        self._check_up()
        return self._server.create(kind.path(namespace), item)

    def replace(self, kind: kinds.Kind, item: Object, subresource: str = "") -> Object:
        """Write the object, or a subresource of it, unless it changed since it was read."""
        self._check_up()
        metadata = item["metadata"]
        path = kind.path(metadata.get("namespace", ""), metadata["name"], subresource)
        return self._server.replace(path, item)

    def replace_status(self, kind: kinds.Kind, item: Object, status: Object) -> Object:
        """Write another status of the object, unless it changed since it was read."""
        return self.replace(kind, {**item, "status": status}, "status")

    def bind(self, pod: Object, node: str) -> None:
        """Bind a pod to a node, as schedulers do."""
        self._check_up()
        metadata = pod["metadata"]
        path = kinds.PODS.path(metadata["namespace"], metadata["name"], "binding")
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": metadata["name"]}}
        self._server.create(path, {**body, "target": target})

    def delete(
        self, kind: kinds.Kind, item: Object, grace_seconds: int | None = None, propagation: str = ""
    ) -> None:
        """Delete this object; it may be gone already, or another one may have its name.

        ``propagation`` says what happens to the objects that it owns; each kind has a default.
        """
        self._check_up()
        metadata = item["metadata"]
        request = parse_request("DELETE", kind.path(metadata.get("namespace", ""), metadata["name"]))
        assert request is not None
        # The UID keeps a new object of the same name from being deleted in its place.
        options: Object = {"preconditions": {"uid": metadata["uid"]}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation:
            options["propagationPolicy"] = propagation
        try:
            self._server.verbs.delete(request, resource_of(request), options, [])
        except Refused as refused:
            # 409: the UID is another one.
            if refused.code not in (NOT_FOUND, CONFLICT):
                raise

    def delete_collection(self, kind: kinds.Kind, field_selector: str) -> None:
        """Delete all objects that a field selector selects."""
        self._check_up()
        self._server.delete(f"{kind.path()}?fieldSelector={quote(field_selector)}")

    def post_event(self, item: Object, event_type: str, reason: str, message: str, source: str) -> None:
        """Post an event about an object, or count one up that was posted before.

        An event that the server refuses, as in a deleted namespace, is lost, as with Kubernetes' recorders.
        """
        self._check_up()
        try:
            self._post_event(item, event_type, reason, message, source)
        except Refused as refused:
            _log.info("the event %s of %s is refused: %s", reason, item["metadata"]["name"], refused)

    def _post_event(self, item: Object, event_type: str, reason: str, message: str, source: str) -> None:
        metadata = item["metadata"]
        namespace = metadata.get("namespace", "default")
        # Recorders of client-go count equal events up, and write no new ones.
        same = (metadata["uid"], reason, message)
        known = self.find(kinds.EVENTS, *self._posted[same]) if same in self._posted else None
        if known is not None:
            count = int(known.get("count", 1)) + 1
            self.replace(kinds.EVENTS, {**known, "count": count, "lastTimestamp": now()})
            return
        reference = {"kind": item["kind"], "apiVersion": item.get("apiVersion", "v1")}
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
        self.create(kinds.EVENTS, namespace, body)

    def _check_up(self) -> None:
        if not self._server.running:
            raise ApiDown("the API server is stopped: start it")


def uid_of(item: Mapping[str, Any]) -> str:
    """The object's UID."""
    return str(item["metadata"]["uid"])


def is_deleted(item: Mapping[str, Any]) -> bool:
    """Whether the object is being deleted."""
    return "deletionTimestamp" in item["metadata"]


def is_terminal(pod: Mapping[str, Any]) -> bool:
    """Whether all containers of a pod have ended for good."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
