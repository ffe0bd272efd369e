"""Finds the pods that wait for devices, in the order in which room is made for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.extended_resources import asked_resources
from kubernetes_rules.preemption.asked import Asked, asked_of
from kubernetes_rules.preemption.pod_fit import anti_affinity
from kubernetes_rules.preemption.units import group_key, least_of

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
    groups: Sequence[Object] = ()

    def asked(self, pod: Object) -> Asked | str:
        """What the pod asks for, or why that cannot be said."""
        return asked_of(pod, self.claims, self.classes, self.nodes, self.pods)


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A pod that waits with the claims that are made for it, or the pods of a gang that wait together.

    ``alike`` is the same for pods to which every answer applies. ``gang`` is the PodGroup, None for a pod.
    """

    pods: tuple[Object, ...]
    claims: tuple[Object, ...]
    alike: str
    gang: Object | None = None

    @property
    def pod(self) -> Object:
        """The pod, or the first of the gang."""
        return self.pods[0]

    @property
    def uid(self) -> str:
        """The UID of the pod, or of the gang's PodGroup."""
        return str((self.gang or self.pod)["metadata"]["uid"])

    @property
    def priority(self) -> int:
        """The priority, which admission has put into the spec; for a gang without one, that of its pods."""
        own = self.gang["spec"].get("priority") if self.gang else None
        return min(int(pod["spec"].get("priority") or 0) for pod in self.pods) if own is None else int(own)

    def __str__(self) -> str:
        return name_of(self.gang or self.pod)


class WaitingPods:
    """Finds the pods for which room may be made. What was found about a pod is kept until that changes."""

    def __init__(self, exempt: Exempt) -> None:
        self._exempt = exempt
        self._known: dict[str, Waiting] = {}
        self._labels: frozenset[str] = frozenset()

    def among(self, around: Surroundings) -> list[Waiting]:
        """The pods that the scheduler has refused: the most important first, then the oldest.

        All their claims are made: a quota may keep a claim from being made, and then no room helps. The pods
        of a gang come together.
        """
        labels = _repelled_labels(around.pods)
        if labels != self._labels:
            self._labels, self._known = labels, {}
        gangs = {_key(one): one for one in around.groups if least_of(one)}
        found = {}
        for pod in around.pods:
            # A pod of a gang may need no devices itself, such as the launcher of a job.
            waits = is_refused(pod) and (asks_devices(pod) or group_key(pod) in gangs)
            if waits and not self._exempt.covers(pod):
                one = self._waiting(pod, around)
                if one is not None:
                    found[one.uid] = one
        self._known = found
        order = sorted(found.values(), key=lambda one: (-one.priority, _created(one.pod), one.uid))
        return _with_gangs(order, gangs) if gangs else order

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
        return Waiting((pod,), asked.claims, _alike(pod, asked.claims, self._labels))


def _with_gangs(order: Iterable[Waiting], gangs: Mapping[Key, Object]) -> list[Waiting]:
    """The same with the pods of each gang as one; a gang without devices waits for something else."""
    members: dict[tuple[str, str], list[Waiting]] = {}
    found: list[Waiting] = []
    for one in order:
        key = group_key(one.pod)
        if key is None or key not in gangs:
            found.append(one)
        else:
            members.setdefault(key, []).append(one)
    for key, some in members.items():
        pods = tuple(one.pod for one in some)
        if not any(map(asks_devices, pods)):
            continue
        claims = tuple({id(claim): claim for one in some for claim in one.claims}.values())
        found.append(Waiting(pods, claims, json.dumps([key, *(one.alike for one in some)]), gangs[key]))
    return sorted(found, key=lambda one: (-one.priority, _created(one.pod), one.uid))


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


def _key(one: Object) -> Key:
    return str(one["metadata"]["namespace"]), str(one["metadata"]["name"])


def named(pods: Iterable[Mapping[str, Any]], namespace: str) -> str:
    """The names of pods, for an event in this namespace. Whoever reads it may not know pods of others."""
    found = list(pods)
    own = sorted(name_of(pod) for pod in found if pod["metadata"]["namespace"] == namespace)
    others = len(found) - len(own)
    some = [f"{others} pod{'s' * (others > 1)} of other namespaces"] if others else []
    return ", ".join([*own, *some])


def _created(pod: Object) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")
