"""Finds the pods that wait for devices, in the order in which room is made for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.pod_claims import asked_resources
from kubernetes_rules.preemption.cluster import Asked, anti_affinity, asked_of

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

_TIMED_OUT = "timed out trying to allocate devices"

_CONTAINER_FIELDS = ("resources", "ports", "restartPolicy")
"""The fields of a container that matter to the scheduler."""

_LOCAL_VOLUMES = ("configMap", "secret", "projected", "downwardAPI", "emptyDir")
"""Volumes that every node has. The service account's token is one of them, with another name in each pod."""


@dataclass(frozen=True, slots=True)
class Exempt:
    """The namespaces and priority classes whose pods are left alone: nobody goes for them, and none goes."""

    namespaces: frozenset[str] = frozenset()
    priority_classes: frozenset[str] = frozenset()

    def covers(self, pod: Mapping[str, Any]) -> bool:
        """Whether the pod is left alone."""
        return (
            pod["metadata"]["namespace"] in self.namespaces
            or pod["spec"].get("priorityClassName") in self.priority_classes
        )


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The objects that say what a pod asks for; ``claims`` by namespace and name."""

    pods: Sequence[Object]
    claims: Mapping[Key, Object]
    classes: Sequence[Object]
    nodes: Sequence[Object]

    def asked(self, pod: Object) -> Asked | str:
        """What the pod asks for, or why that cannot be said."""
        return asked_of(pod, self.claims, self.classes, self.nodes, self.pods)


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A pod that waits, with the claims that are made for it.

    ``alike`` is the same for pods to which every answer applies.
    """

    pod: Object
    claims: tuple[Object, ...]
    alike: str

    @property
    def uid(self) -> str:
        """The UID of the pod."""
        return str(self.pod["metadata"]["uid"])

    @property
    def priority(self) -> int:
        """The priority, which admission has put into the spec."""
        return int(self.pod["spec"].get("priority") or 0)

    def __str__(self) -> str:
        return name_of(self.pod)


class WaitingPods:
    """Finds the pods for which room may be made. What was found about a pod is kept until that changes."""

    def __init__(self, exempt: Exempt) -> None:
        self._exempt = exempt
        self._known: dict[str, Waiting] = {}
        self._labels: frozenset[str] = frozenset()

    def among(self, around: Surroundings) -> list[Waiting]:
        """The pods that the scheduler has refused: the most important first, then the oldest.

        All their claims are made: a quota may keep a claim from being made, and then no room helps.
        """
        labels = _repelled_labels(around.pods)
        if labels != self._labels:
            self._labels, self._known = labels, {}
        found = {}
        for pod in around.pods:
            if is_refused(pod) and asks_devices(pod) and not self._exempt.covers(pod):
                one = self._waiting(pod, around)
                if one is not None:
                    found[one.uid] = one
        self._known = found
        return sorted(found.values(), key=lambda one: (-one.priority, _created(one.pod), one.uid))

    def _waiting(self, pod: Object, around: Surroundings) -> Waiting | None:
        known = self._known.get(str(pod["metadata"]["uid"]))
        # The watches keep an object until it changes.
        if known is not None and known.pod is pod:
            keys = ((one["metadata"]["namespace"], one["metadata"]["name"]) for one in known.claims)
            if all(around.claims.get(key) is one for key, one in zip(keys, known.claims, strict=True)):
                return known
        asked = around.asked(pod)
        if isinstance(asked, str):
            return None
        return Waiting(pod, asked.claims, _alike(pod, asked.claims, self._labels))


def asks_devices(pod: Object) -> bool:
    """Whether the pod asks for devices."""
    return bool(pod["spec"].get("resourceClaims") or asked_resources(pod))


def is_refused(pod: Object) -> bool:
    """Whether the pod waits because no node fits, and may preempt others.

    For one device more than is free the scheduler may try so many combinations that it gives up after 10 s.
    Then it says SchedulerError (Go: dynamicresources.go, Filter).
    """
    spec = pod["spec"]
    if spec.get("nodeName") or "deletionTimestamp" in pod["metadata"]:
        return False
    if spec.get("preemptionPolicy") == "Never":
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        (one["type"], one["status"]) == ("PodScheduled", "False")
        and (
            one.get("reason") == "Unschedulable"
            or (one.get("reason") == "SchedulerError" and str(one.get("message")).endswith(_TIMED_OUT))
        )
        for one in conditions
    )


def _repelled_labels(pods: Iterable[Object]) -> frozenset[str]:
    """The keys of the labels by which pods keep other pods away."""
    selectors = [term.get("labelSelector") or {} for pod in pods for term in anti_affinity(pod)]
    keys = {key for selector in selectors for key in selector.get("matchLabels") or ()}
    return frozenset(
        keys.union(one["key"] for selector in selectors for one in selector.get("matchExpressions") or ())
    )


def _alike(pod: Object, claims: Iterable[Object], labels: frozenset[str]) -> str:
    """A text that is the same for pods that ask for the same in every respect that matters."""
    spec = {key: value for key, value in pod["spec"].items() if key not in ("resourceClaims", "volumes")}
    for field in ("containers", "initContainers"):
        spec[field] = [{key: one.get(key) for key in _CONTAINER_FIELDS} for one in spec.get(field) or ()]
    volumes = pod["spec"].get("volumes") or ()
    placed = [one for one in volumes if not any(key in one for key in _LOCAL_VOLUMES)]
    asked = [
        # A claim that several pods share, or that has devices, is not like any other.
        one["metadata"]["uid"] if one.get("status") else one["spec"]
        for one in claims
    ]
    metadata = pod["metadata"]
    own = {key: value for key, value in (metadata.get("labels") or {}).items() if key in labels}
    return json.dumps([metadata["namespace"], own, spec, placed, asked], sort_keys=True)


def name_of(pod: Mapping[str, Any]) -> str:
    """``namespace/name``."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def named(pods: Iterable[Mapping[str, Any]], namespace: str) -> str:
    """The names of pods, for an event in this namespace. Whoever reads it may not know pods of others."""
    found = list(pods)
    own = sorted(name_of(pod) for pod in found if pod["metadata"]["namespace"] == namespace)
    others = len(found) - len(own)
    some = [f"{others} pod{'s' * (others > 1)} of other namespaces"] if others else []
    return ", ".join([*own, *some])


def _created(pod: Object) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")
