"""The watches behind the page: each keeps its part of the cluster, and hands on what changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from driver.errors import ApiError
from driver.kube.errors import Forbidden
from driver.kube.reflector import Reflector, Selection
from gpuctl.cli.cluster_view import DRA
from gpuctl.cli.failures import told
from gpuctl.fleet.waiting import asks_devices
from gpuctl.web.watch.state import Kind

if TYPE_CHECKING:
    from driver.kube.client import KubeClient

Object = dict[str, Any]
Hear = Callable[[Kind, Object, bool, bool], None]
"""Called with the kind, the object, whether it is gone, and whether that is news."""


@dataclass(frozen=True, slots=True)
class Source:
    """A collection to watch. What ``concerns`` says no to is as if it were not there."""

    kind: Kind
    what: str
    path: str
    fields: Mapping[str, str]
    concerns: Callable[[Object], bool] = lambda _item: True


def _of_event(component: str) -> Source:
    return Source("event", f"events of {component}", "/api/v1/events", {"reportingComponent": component})


SOURCES = (
    Source("slice", "ResourceSlices", f"{DRA}/resourceslices", {}),
    Source("class", "DeviceClasses", f"{DRA}/deviceclasses", {}),
    Source("claim", "ResourceClaims", f"{DRA}/resourceclaims", {}),
    Source("node", "nodes", "/api/v1/nodes", {}),
    Source("pod", "pods that wait", "/api/v1/pods", {"status.phase": "Pending"}, asks_devices),
    _of_event("gpu-dra-controller"),
    _of_event("gpu-dra-kubeletplugin"),
)
"""Of pods only those that wait, of events only those of this driver: a cluster has many others."""


class Sources:
    """All watches, each in a thread of its own from ``start`` to ``stop``."""

    def __init__(self, client: KubeClient, hear: Hear, changed: Callable[[], None]) -> None:
        """``hear`` is called by the watches, ``changed`` when ``synced`` or ``failing`` may be another."""
        self._client = client
        self._hear = hear
        self._changed = changed
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failing: dict[str, str] = {}
        self._refused: set[str] = set()
        self._reflectors = [self._reflector(source) for source in SOURCES]
        self._threads = [
            threading.Thread(target=one.run, name=f"watch {source.what}", daemon=True)
            for source, one in zip(SOURCES, self._reflectors, strict=True)
        ]

    def _reflector(self, source: Source) -> Reflector:
        def hear(event: str, item: Object) -> None:
            self._hear(source.kind, item, event == "DELETED", reflector.synced.is_set())
            self._note(source, None)

        def listed(_count: int) -> None:
            self._note(source, None)
            self._changed()

        def failed(error: ApiError, _wait_seconds: float) -> None:
            refused = isinstance(error, Forbidden)
            if refused:
                self._refused.add(source.what)
            words = "Not shown, for want of rights" if refused else "Not up to date"
            self._note(source, f"{words}: {source.what}: {told(error)}")
            self._changed()

        reflector = Reflector(
            self._client,
            Selection(source.path, source.fields, {}),
            self._stop,
            on_event=hear,
            on_list=listed,
            on_failure=failed,
            concerns=source.concerns,
        )
        return reflector

    def _note(self, source: Source, failure: str | None) -> None:
        with self._lock:
            if failure is None:
                self._failing.pop(source.what, None)
            else:
                self._failing[source.what] = failure

    @property
    def synced(self) -> bool:
        """Whether all that this user may read was read at least once."""
        return all(
            one.synced.is_set() or source.what in self._refused
            for source, one in zip(SOURCES, self._reflectors, strict=True)
        )

    @property
    def failing(self) -> tuple[str, ...]:
        """What cannot be watched now, and why."""
        with self._lock:
            return tuple(self._failing[name] for name in sorted(self._failing))

    def start(self) -> None:
        """Begin to watch."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all watches, and wait until they have."""
        self._stop.set()
        self._client.close()
        for one in self._reflectors:
            one.wake()
        for thread in self._threads:
            thread.join()
