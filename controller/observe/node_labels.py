"""Knows the labels of this node, by which its pool is chosen.

They are read again from time to time, by name, which is a right that the controller has anyway. To be told of
a change it would have to list and watch Nodes, and so could read those of the whole cluster.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from driver.errors import ApiError
from driver.kube.paths import NODES, object_path
from driver.process.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from driver.kube.client import KubeClient

_log = get_logger(__name__)


class NodeLabels:
    """The labels of one node, not older than ``every_seconds`` while the server answers; for one thread."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        every_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._path = object_path(NODES, node)
        self._every_seconds = every_seconds
        self._clock = clock
        self._labels: Mapping[str, str] | None = None
        self._read_at = 0.0
        self._failed = False

    def current(self) -> Mapping[str, str]:
        """The labels as last read; raises ApiError while they could never be read."""
        now = self._clock()
        if self._labels is None or now - self._read_at >= self._every_seconds:
            self._read_again(now)
        return self._labels or {}

    def _read_again(self, now: float) -> None:
        try:
            node = self._client.get_metadata(self._path)
        except ApiError as error:
            if self._labels is None:
                raise
            if not self._failed:
                _log.warning("labels of the node not read, those before stay", error=str(error))
            self._failed = True
        else:
            self._labels = node["metadata"].get("labels") or {}
            self._failed = False
        self._read_at = now
