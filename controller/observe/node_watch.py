"""Follows the Node object of this node and its labels, which decide the node's pool of rules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from driver.errors import ApiError
from driver.kube.client import KubeClient, Object
from driver.kube.paths import NODES, object_path
from driver.kube.reflector import EventType, Reflector, Selection
from driver.process.log import get_logger

_log = get_logger(__name__)


class NodeWatch:
    """Calls ``on_node`` with the Node when it is first read and whenever it has changed.

    ``reflector`` runs in a thread of its own.
    """

    # This is seldom called: the kubelet renews a Lease every ten seconds, and writes its Node only every five
    # minutes or when something has changed.

    def __init__(
        self, client: KubeClient, stop_event: threading.Event, on_node: Callable[[Object], None], *, node: str
    ) -> None:
        self._on_node = on_node
        self.reflector = Reflector(
            client,
            # Only this node. RBAC cannot express "the node of the pod", so the right is to read all nodes.
            Selection(NODES, {"metadata.name": node}, {}),
            stop_event,
            on_event=self._seen,
            on_failure=self._failed,
        )

    def _seen(self, kind: EventType, item: Object) -> None:
        if kind != "DELETED":
            self._on_node(item)

    def _failed(self, error: ApiError, wait_seconds: float) -> None:
        _log.warning("cannot follow the node", error=str(error), again_in_seconds=round(wait_seconds, 2))


class NodeLabels:
    """The labels of one node, from the last ``seen``; ``on_change`` is called when they have changed."""

    def __init__(self, client: KubeClient, node: str, on_change: Callable[[], None]) -> None:
        self._client = client
        self._path = object_path(NODES, node)
        self._on_change = on_change
        self._lock = threading.Lock()
        self._labels: Mapping[str, str] | None = None

    def seen(self, node: Object) -> None:
        """Take in the Node; may be called by another thread than ``current``."""
        labels = node["metadata"].get("labels") or {}
        with self._lock:
            changed = labels != self._labels
            self._labels = labels
        if changed:
            self._on_change()

    def current(self) -> Mapping[str, str]:
        """The labels; before the first ``seen`` they are read from the API server; may raise ApiError."""
        with self._lock:
            known = self._labels
        if known is not None:
            return known
        read: Mapping[str, str] = self._client.get_metadata(self._path)["metadata"].get("labels") or {}
        with self._lock:
            # The watch may have been faster, and then it has the newer labels.
            if self._labels is None:
                self._labels = read
            return self._labels
