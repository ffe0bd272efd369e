"""Follows the Node object of this node, for whoever needs to know of its labels or its capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driver.kube.backoff import Backoff
from driver.kube.paths import NODES
from driver.kube.reflector import Reflector, Selection
from driver.process.log import get_logger

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from driver.errors import ApiError
    from driver.kube.client import KubeClient
    from driver.kube.reflector import EventType, Object

_log = get_logger(__name__)

_RETRY_SECONDS = (1.0, 60.0)


class NodeWatch:
    """Calls ``on_node`` with the Node when it is first read and whenever it has changed.

    The kubelet renews a Lease every ten seconds and writes its Node every five minutes and when something has
    changed, so this is seldom called. ``reflector`` runs in a thread of its own. It lists and watches one
    node by its name; RBAC cannot say that, so the right is one to read all nodes.
    """

    def __init__(
        self, client: KubeClient, stop_event: threading.Event, on_node: Callable[[Object], None], *, node: str
    ) -> None:
        self._on_node = on_node
        self.reflector = Reflector(
            client,
            Selection(NODES, {"metadata.name": node}, {}),
            stop_event,
            on_event=self._seen,
            on_failure=self._failed,
            backoff=Backoff(*_RETRY_SECONDS),
        )

    def _seen(self, kind: EventType, item: Object) -> None:
        if kind != "DELETED":
            self._on_node(item)

    def _failed(self, error: ApiError, wait_seconds: float) -> None:
        _log.warning("node not followed", error=str(error), again_in_seconds=round(wait_seconds, 2))
