"""Follows the slices of all nodes as an administrator, and knows which nodes have the right ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from driver.devices.names import DRIVER_NAME, pool_name
from driver.kube.client import KubeClient
from driver.kube.paths import RESOURCE_SLICES
from driver.kube.reflector import EventType, Reflector, Selection
from driver.slices.specs import same_spec

Object = dict[str, Any]
LIMIT_SECONDS = 60.0
"""How soon all slices must be right after something happened to all nodes."""

_LONGEST_SECONDS = 5 * LIMIT_SECONDS


class ObservedSlices:
    """The slices of the nodes with these names, compared with what ``expect`` was told.

    ``reflector`` runs in a thread of its own.
    """

    def __init__(self, client: KubeClient, names: Iterable[str], stop: threading.Event) -> None:
        self._names = frozenset(names)
        self._specs: Sequence[Mapping[str, Any]] = ()
        self._tainted: Mapping[str, frozenset[str]] = {}
        # By node and name of the slice: the number of the expected spec that it has, and its UID.
        self._seen: dict[str, dict[str, tuple[int, str]]] = {name: {} for name in self._names}
        self._old: frozenset[str] = frozenset()
        self._right: set[str] = set()
        # Devices as the API server writes them, which were found to be those of the expected spec.
        self._known: list[tuple[int, list[Object]]] = []
        self._changed = threading.Condition()
        selection = Selection(RESOURCE_SLICES, {"spec.driver": DRIVER_NAME}, {})
        self.reflector = Reflector(client, selection, stop, on_event=self._event)

    def expect(
        self,
        specs: Sequence[Mapping[str, Any]],
        tainted: Mapping[str, frozenset[str]],
        *,
        written_again: bool = False,
    ) -> None:
        """From now on a node is right if its slices have the devices of these specs, in any order.

        ``tainted`` are the names of the devices that must have taints, by node; no other device may have one.
        ``written_again``: slices that exist now do not count.
        """
        with self._changed:
            stored, _ = self.reflector.snapshot()
            self._specs, self._tainted = specs, tainted
            self._old = (
                frozenset(item["metadata"]["uid"] for item in stored) if written_again else frozenset()
            )
            self._known.clear()
            for item in stored:
                self._take("MODIFIED", item)

    def seconds_until_right(self, since: float) -> float:
        """Wait until all nodes are right; the seconds since then.

        After five minutes it gives up: the seconds are infinite.
        """
        with self._changed:
            left_seconds = since + _LONGEST_SECONDS - time.monotonic()
            if self._changed.wait_for(lambda: len(self._right) == len(self._names), left_seconds):
                return time.monotonic() - since
        return float("inf")

    def _event(self, kind: EventType, item: Object) -> None:
        with self._changed:
            self._take(kind, item)
            if len(self._right) == len(self._names):
                self._changed.notify_all()

    def _take(self, kind: EventType, item: Object) -> None:
        """Note one slice. The lock is held."""
        node, metadata = item["spec"].get("nodeName"), item["metadata"]
        if node not in self._names:
            return
        slices = self._seen[node]
        if kind == "DELETED":
            slices.pop(metadata["name"], None)
        else:
            slices[metadata["name"]] = self._which(node, item["spec"]), metadata["uid"]
        numbers = sorted(number for number, _ in slices.values())
        fresh = all(uid not in self._old for _, uid in slices.values())
        is_right = fresh and bool(numbers) and numbers == list(range(len(self._specs)))
        (self._right.add if is_right else self._right.discard)(node)

    def _which(self, node: str, spec: Mapping[str, Any]) -> int:
        """The number of the expected spec that this is, -1 if it is none."""
        devices = [{**device} for device in spec.get("devices") or ()]
        tainted = {device["name"] for device in devices if device.pop("taints", None)}
        names = {device["name"] for device in devices}
        if tainted != names & self._tainted.get(node, frozenset()):
            return -1
        for number, known in self._known:
            if known == devices:
                return number
        for number, expected in enumerate(self._specs):
            pool = {**expected["pool"], "name": pool_name(node)}
            if same_spec({**expected, "nodeName": node, "pool": pool}, {**spec, "devices": devices}):
                if not spec.get("sharedCounters"):
                    self._known.append((number, devices))
                return number
        return -1
