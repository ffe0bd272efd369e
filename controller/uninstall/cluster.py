"""The uninstallation's requests to the API server: lists, and the DaemonSets of one namespace."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from driver.devices.names import CHANNELS_DRIVER_NAME, DRIVER_NAME
from driver.kube.backoff import retry_until
from driver.kube.client import KubeClient
from driver.kube.errors import Conflict, NotFound
from driver.kube.paths import NODES, RESOURCE_SLICES, object_path

T = TypeVar("T")
Object = dict[str, Any]

CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
PAUSED = "gpu.nvidia.com/uninstalling"
"""A node label that no node has; a DaemonSet with this node selector has no pods."""

_PAGE = 500
_PATIENCE_SECONDS = 30.0

_MOST_NAMED = 20
_DRIVERS = (DRIVER_NAME, CHANNELS_DRIVER_NAME)


@dataclass(frozen=True, slots=True)
class Cluster:
    """One API server and the namespace in which the driver is installed. All methods raise ApiError."""

    client: KubeClient
    namespace: str

    def claims(self) -> list[Object]:
        """All claims of the cluster."""
        return self._all(CLAIMS, {})

    def slices(self) -> list[Object]:
        """The slices of this driver."""
        return self._all(RESOURCE_SLICES, {"fieldSelector": f"spec.driver={DRIVER_NAME}"})

    def delete_slice(self, item: Object) -> None:
        """Delete a slice; it is no error if it is gone."""
        metadata = item["metadata"]
        try:
            path = object_path(RESOURCE_SLICES, metadata["name"])
            _patiently(lambda: self.client.delete(path, uid=metadata["uid"]))
        except (NotFound, Conflict):
            # A conflict means that another slice has the name now, which the next list shows.
            return

    def ready_nodes(self) -> frozenset[str]:
        """The names of the nodes that are Ready."""
        return frozenset(node["metadata"]["name"] for node in self._all(NODES, {}) if is_ready(node))

    def pods(self, labels: dict[str, str]) -> list[Object]:
        """The pods of the namespace with these labels."""
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        return self._all(f"/api/v1/namespaces/{self._namespace}/pods", {"labelSelector": selector})

    def daemon_set(self, name: str) -> Object | None:
        """The DaemonSet, None if there is none."""
        try:
            return _patiently(lambda: self.client.get(object_path(self._daemon_sets, name)))
        except NotFound:
            return None

    def create_daemon_set(self, body: Object) -> None:
        """Create a DaemonSet."""
        _patiently(lambda: self.client.create(self._daemon_sets, body))

    def delete_daemon_set(self, name: str) -> None:
        """Delete a DaemonSet; its pods are deleted soon after. It is no error if there is none."""
        try:
            _patiently(lambda: self.client.delete(object_path(self._daemon_sets, name)))
        except NotFound:
            return

    def pause(self, name: str) -> None:
        """Make the DaemonSet run on no node, until ``resume``; it is no error if there is none."""
        # A DaemonSet has no replicas to scale down. With a node selector that no node meets its pods end, and
        # nothing else of it has to be remembered to undo that.
        self._select(name, "true")

    def resume(self, name: str) -> None:
        """Undo ``pause``."""
        self._select(name, None)

    def _select(self, name: str, value: str | None) -> None:
        # In a merge patch (RFC 7386) null removes the key.
        spec = {"template": {"spec": {"nodeSelector": {PAUSED: value}}}}
        path, body = object_path(self._daemon_sets, name), {"spec": spec}
        try:
            _patiently(lambda: self.client.patch(path, body, "application/merge-patch+json"))
        except NotFound:
            return

    @property
    def _namespace(self) -> str:
        return quote(self.namespace, safe="")

    @property
    def _daemon_sets(self) -> str:
        return f"/apis/apps/v1/namespaces/{self._namespace}/daemonsets"

    def _all(self, path: str, params: dict[str, str]) -> list[Object]:
        """Every object of a collection, read in pages."""
        found: list[Object] = []
        token = ""
        while True:
            page = {"limit": str(_PAGE), **params, **({"continue": token} if token else {})}
            answer = _patiently(partial(self.client.get, path, page))
            found += answer.get("items") or []
            token = (answer.get("metadata") or {}).get("continue") or ""
            if not token:
                return found


def _patiently(call: Callable[[], T]) -> T:
    """The answer of a call, which is retried while that can help; raises ApiError."""
    # An uninstallation that stops at a short failure would leave the driver paused.
    deadline = time.monotonic() + _PATIENCE_SECONDS
    return retry_until(call, deadline=deadline, stop=threading.Event())


def is_ready(item: Object) -> bool:
    """Whether a Node or a Pod has the condition Ready."""
    conditions = (item.get("status") or {}).get("conditions") or []
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A claim that is allocated devices of this driver, with the names of the pods that it is reserved for.

    ``pools`` are those of the devices; a pool's name begins with that of its node.
    """

    namespace: str
    claim: str
    pods: tuple[str, ...]
    pools: tuple[str, ...]

    def __str__(self) -> str:
        nodes = ", ".join(pool.split("/")[0] for pool in self.pools)
        if not self.pods:
            return f"claim {self.namespace}/{self.claim} on {nodes}, without a pod"
        return f"pod {', '.join(f'{self.namespace}/{pod}' for pod in self.pods)} on {nodes}"


def holders(claims: Iterable[Object]) -> tuple[Holder, ...]:
    """The claims with an allocation of GPUs or channels of this driver, sorted."""
    # The kubelet unprepares a claim before its allocation is removed. So every prepared claim that still
    # exists is among them.
    return tuple(sorted(found for claim in claims if (found := _holder(claim)) is not None))


def _holder(claim: Object) -> Holder | None:
    status = claim.get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or []
    pools = {str(result.get("pool", "")) for result in results if result.get("driver") in _DRIVERS}
    if not pools:
        return None
    pods = [str(user["name"]) for user in status.get("reservedFor") or [] if user.get("resource") == "pods"]
    metadata = claim["metadata"]
    return Holder(metadata["namespace"], metadata["name"], tuple(sorted(pods)), tuple(sorted(pools)))


def named(found: Iterable[object]) -> str:
    """All of them in one line, but not more than a person reads."""
    words = [str(one) for one in found]
    more = len(words) - _MOST_NAMED
    return "; ".join(words[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
