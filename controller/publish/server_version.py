"""Waits with publishing while the API server is older than the driver supports."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from controller.observe.node_events import NodeEvents
from driver.errors import ApiError
from driver.event_reasons import EventReason
from driver.kube.client import KubeClient
from driver.process.log import get_logger

_DIGITS = re.compile(r"[0-9]{1,6}", re.ASCII)
_log = get_logger(__name__)


class ServerVersion(NamedTuple):
    """Major and minor version; a tuple, so that versions compare by number."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


OLDEST = ServerVersion(1, 36)
"""The oldest supported version: it has the DRA fields that this driver writes, and the tests run on it."""


class SupportedServer:
    """Asks the API server for its version until that is supported.

    ``waits(sentence)`` is called with the reason why nothing is published, and with an empty text afterwards.
    """

    def __init__(
        self,
        client: KubeClient,
        events: NodeEvents,
        stop_event: threading.Event,
        waits: Callable[[str], None],
        again_seconds: float,
    ) -> None:
        self._client = client
        self._events = events
        self._stop_event = stop_event
        self._waits = waits
        self._again_seconds = again_seconds

    def wait(self) -> bool:
        """Wait while the server is too old, and report that once; False if the process stops meanwhile."""
        is_reported = False
        while (why_not := self._too_old()) and not self._stop_event.is_set():
            if not is_reported:
                _log.error("the API server is too old, so nothing is published", error=why_not)
                self._events.post(EventReason.KUBERNETES_TOO_OLD, why_not)
                self._waits(why_not)
                is_reported = True
            self._stop_event.wait(self._again_seconds)
        if why_not:
            return False
        self._waits("")
        return True

    def _too_old(self) -> str:
        try:
            version = server_version(self._client)
        except ApiError as error:
            # An unknown version does not stop the node; a hardened cluster may forbid /version.
            _log.info("cannot read the API server's version", error=str(error))
            return ""
        if version is None or version >= OLDEST:
            return ""
        return (
            f"the API server has Kubernetes {version}, but {OLDEST} is the oldest supported version, so "
            f"nothing is published for this node; upgrade the control plane to {OLDEST} or later"
        )


def server_version(client: KubeClient) -> ServerVersion | None:
    """The server's version; None if its answer has none. Raises ApiError."""
    return _read(client.get("/version"))


def _read(answer: dict[str, Any]) -> ServerVersion | None:
    # Both numbers are strings (version.Info of apimachinery), and some clouds write a plus behind the minor
    # one.
    major, minor = (_DIGITS.match(str(answer.get(key, ""))) for key in ("major", "minor"))
    return ServerVersion(int(major[0]), int(minor[0])) if major and minor else None
