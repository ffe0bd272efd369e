"""What the connections of the API server share: its objects, what it was asked, and whether it serves."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from envtest.embedded.api.faults import Faults
from envtest.embedded.api.store import Store
from envtest.embedded.api.verbs import Verbs

if TYPE_CHECKING:
    from collections.abc import Callable

    from envtest.embedded.api.container_log import ContainerLog
    from envtest.embedded.api.listener import Listener
    from envtest.embedded.api.requests import Request

    FindLog = Callable[[str, str], ContainerLog | None]

_KEPT_REQUESTS = 10_000


def _no_log(_pod_uid: str, _container: str) -> ContainerLog | None:
    return None


class ServedApi:
    """A stateful API as its connections see it.

    ``faults`` makes requests fail. ``verbs`` has the switches of an older server. Each watch sends a
    bookmark when ``bookmarks_due`` rises, and ends when ``watch_generation`` does; ``watches`` counts them.
    Where ``accepted_bearer`` is set, requests that bear another token are answered 401. ``find_log`` finds
    what a container printed, by its pod's UID and its own name; without nodes nobody prints anything.
    ``minor`` is the minor version of Kubernetes that it says it is of, ``host`` where it listens, and
    ``ahead_seconds`` how far its clock is before this machine's in the Date of its answers.
    """

    def __init__(self) -> None:
        self.store = Store()
        self.verbs = Verbs(self.store)
        self.faults = Faults()
        self.bookmark_seconds = 60.0
        self.accepted_bearer: str | None = None
        self.minor = "37"
        self.host = "127.0.0.1"
        self.ahead_seconds = 0.0
        self.requests: deque[Request] = deque(maxlen=_KEPT_REQUESTS)
        self.bookmarks_due = 0
        self.watch_generation = 0
        self.watches = 0
        self.find_log: FindLog = _no_log
        self._listener: Listener | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where it listens; stays the same when it is stopped and started again."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self._port}"

    @property
    def address(self) -> str:
        """``host:port`` of ``url``."""
        return self.url.removeprefix("http://")

    @property
    def running(self) -> bool:
        """Whether it accepts connections."""
        return self._listener is not None

    def serves(self, listener: object) -> bool:
        """Whether ``listener`` is the one that runs: those of an earlier start have to end."""
        return self._listener is listener

    def watch_began(self) -> None:
        """Count a watch from whose beginning no change is missed any more."""
        with self.store.changed:
            self.watches += 1
            self.store.changed.notify_all()

    def heard(self, request: Request) -> None:
        """Remember a request."""
        self.requests.append(request)
