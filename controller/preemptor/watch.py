"""Follows everything that a decision depends on, and notes whether something changed that can change one.

Most changes of objects don't matter: heartbeats of nodes, what containers do, what drivers report in the
status of claims. So of each object only some fields are compared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from driver.errors import ApiError
from driver.kube.backoff import retry_until
from driver.kube.client import KubeClient
from driver.kube.errors import NotFound
from driver.kube.paths import NODES, RESOURCE_SLICES
from driver.kube.reflector import Reflector, Selection
from driver.process.log import get_logger
from driver.process.service import Service

Object = dict[str, Any]
Kind = Literal["pods", "claims", "slices", "nodes", "classes", "budgets", "taint_rules"]

_DRA = "/apis/resource.k8s.io/v1"
_PATHS: Mapping[Kind, str] = {
    "pods": "/api/v1/pods",
    "claims": f"{_DRA}/resourceclaims",
    "slices": RESOURCE_SLICES,
    "nodes": NODES,
    "classes": f"{_DRA}/deviceclasses",
    "budgets": "/apis/policy/v1/poddisruptionbudgets",
    "taint_rules": f"{_DRA}/devicetaintrules",
}
_OPTIONAL: tuple[Kind, ...] = ("taint_rules",)
"""What a server may not have: 1.36 has no taint rules of v1."""

_SERVED_AGAIN_SECONDS = 600.0
"""How often to ask whether the server has an optional kind now."""

_log = get_logger(__name__)


def facts(kind: Kind, item: Object) -> tuple[Any, ...]:
    """The fields of an object that decisions depend on, as a value to compare."""
    metadata, spec, status = item["metadata"], item.get("spec"), item.get("status") or {}
    identity = metadata.get("uid"), "deletionTimestamp" in metadata
    match kind:
        case "pods":
            conditions = status.get("conditions") or ()
            told = [
                (one["type"], one["status"], one.get("reason"))
                for one in conditions
                if one["type"] in ("PodScheduled", "DisruptionTarget", "Ready")
            ]
            claims = status.get("resourceClaimStatuses"), status.get("extendedResourceClaimStatus")
            phase = status.get("phase"), status.get("startTime"), status.get("nominatedNodeName")
            return *identity, spec, metadata.get("labels"), told, claims, phase
        case "claims":
            return *identity, status.get("allocation"), status.get("reservedFor")
        case "nodes":
            return *identity, spec, metadata.get("labels"), status.get("allocatable")
        case "budgets":
            counted = {key: value for key, value in status.items() if key != "conditions"}
            return *identity, metadata.get("generation"), spec, counted
        case _:
            return *identity, spec


def matters(kind: Kind, item: Object) -> bool:
    """Whether an object can matter at all: clusters keep many pods that have ended and never had a claim."""
    status = item.get("status") or {}
    if kind != "pods" or status.get("phase") not in ("Succeeded", "Failed"):
        return True
    return bool(item["spec"].get("resourceClaims") or status.get("extendedResourceClaimStatus"))


@dataclass(frozen=True, slots=True)
class Stored:
    """The objects of the cluster at one moment. ``version`` changes if something changed that matters.

    Changes of pods that have no node count in ``pods_version`` alone: they hold no devices.
    """

    objects: Mapping[Kind, list[Object]]
    version: int
    pods_version: int

    def __getitem__(self, kind: Kind) -> list[Object]:
        """All objects of a kind."""
        return self.objects[kind]


class Watch:
    """The watches of one process, each in a thread of its own. ``changed`` is called from these threads."""

    def __init__(
        self,
        client: KubeClient,
        stop: threading.Event,
        changed: Callable[[], None],
        restarted: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._stop = stop
        self._changed = changed
        self._restarted = restarted
        self._lock = threading.Lock()
        self._facts: dict[tuple[Kind, str], tuple[Any, ...]] = {}
        self._version = self._pods_version = 0
        self._not_served: set[Kind] = set()
        self._reflectors = {kind: self._reflector(kind) for kind in _PATHS}

    def start(self, service: Service) -> None:
        """Start to watch, until the service ends."""
        for kind, one in self._reflectors.items():
            run = self._run_if_served(kind) if kind in _OPTIONAL else one.run
            service.spawn(f"watch-{kind}", run, one.wake)

    def why_not(self) -> str:
        """What is not up to date, as a sentence for people; empty if everything is."""
        behind = [
            kind.replace("_", " ")
            for kind, one in self._reflectors.items()
            if not (one.synced.is_set() and one.watching.is_set()) and kind not in self._not_served
        ]
        return f"not watched at the moment: {', '.join(behind)}" if behind else ""

    def stored(self) -> Stored:
        """Everything as it is now."""
        with self._lock:
            # Before the objects: what changes in between is seen again in the next round.
            version, pods_version = self._version, self._pods_version
        objects = {kind: one.snapshot()[0] for kind, one in self._reflectors.items()}
        return Stored(objects, version, pods_version)

    def _reflector(self, kind: Kind) -> Reflector:
        def seen(event: str, item: Object) -> None:
            self._note(kind, item, gone=event == "DELETED")

        def failed(error: ApiError, wait_seconds: float) -> None:
            _log.warning("cannot watch", kind=kind, error=str(error), wait_seconds=round(wait_seconds, 1))
            self._restarted()

        selection = Selection(_PATHS[kind], {}, {})
        return Reflector(
            self._client,
            selection,
            self._stop,
            on_event=seen,
            on_list=lambda _count: self._changed(),
            on_failure=failed,
            concerns=lambda item: matters(kind, item),
        )

    def _run_if_served(self, kind: Kind) -> Callable[[], None]:
        def run() -> None:
            while not self._stop.is_set():
                if self._is_served(kind):
                    self._not_served.discard(kind)
                    self._reflectors[kind].run()
                    return
                self._not_served.add(kind)
                self._changed()
                self._stop.wait(_SERVED_AGAIN_SECONDS)

        return run

    def _is_served(self, kind: Kind) -> bool:
        """Whether the API server has this kind, from its discovery; False also if the process stops."""
        version, _, plural = _PATHS[kind].rpartition("/")
        try:
            answer = retry_until(lambda: self._client.get(version), deadline=None, stop=self._stop)
        except NotFound:
            return False
        except ApiError as error:
            _log.warning("cannot ask whether the API server has this kind", kind=kind, error=str(error))
            return False
        return any(one["name"] == plural for one in answer.get("resources") or ())

    def _note(self, kind: Kind, item: Object, *, gone: bool) -> None:
        key = kind, f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
        with self._lock:
            before = self._facts.pop(key, None)
            if not gone:
                self._facts[key] = after = facts(kind, item)
                if before == after:
                    return
            # A pod gets its node once and keeps it.
            if kind == "pods" and not item["spec"].get("nodeName"):
                self._pods_version += 1
            else:
                self._version += 1
        self._changed()
