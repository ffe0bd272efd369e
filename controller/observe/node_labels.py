"""Knows the labels of this node, by which its pool is chosen."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from driver.kube.paths import NODES, object_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from driver.kube.client import KubeClient
    from driver.kube.reflector import Object


class NodeLabels:
    """The labels of one node, as ``seen`` was told last; ``on_change`` is called when they are others."""

    def __init__(self, client: KubeClient, node: str, on_change: Callable[[], None]) -> None:
        self._client = client
        self._path = object_path(NODES, node)
        self._on_change = on_change
        self._lock = threading.Lock()
        self._labels: Mapping[str, str] | None = None

    def seen(self, node: Object) -> None:
        """Take in the Node as it is; for another thread than that of ``current``."""
        labels = node["metadata"].get("labels") or {}
        with self._lock:
            changed = labels != self._labels
            self._labels = labels
        if changed:
            self._on_change()

    def current(self) -> Mapping[str, str]:
        """The labels; read by name while nobody has told of the Node, which raises ApiError."""
        with self._lock:
            known = self._labels
        if known is not None:
            return known
        read: Mapping[str, str] = self._client.get_metadata(self._path)["metadata"].get("labels") or {}
        with self._lock:
            if self._labels is None:
                self._labels = read
            return self._labels
