"""Finds the pods that wait for devices, in the order in which room is made for them, and their claims."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.extended_resources import asked_resources, class_of, extended_requests, pod_amounts
from kubernetes_rules.pod_claims import claim_entries, extended_claim, is_made_for

Json = Mapping[str, Any]
Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

_CONTAINER_FIELDS = ("resources", "ports", "restartPolicy")
"""The fields of a container that matter to the scheduler."""

_LOCAL_VOLUMES = ("configMap", "secret", "projected", "downwardAPI", "emptyDir")
"""Volumes that every node has. The service account's token is one of them, with another name in each pod."""


@dataclass(frozen=True, slots=True)
class Exempt:
    """The namespaces and priority classes whose pods are left alone: nobody goes for them, and none goes."""

    namespaces: frozenset[str] = frozenset()
    priority_classes: frozenset[str] = frozenset()

    def covers(self, pod: Json) -> bool:
        """Whether the pod is left alone."""
        return (
            pod["metadata"]["namespace"] in self.namespaces
            or pod["spec"].get("priorityClassName") in self.priority_classes
        )


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A pod that waits, with its claims. ``alike`` is the same for pods to which every answer applies.

    The claim for extended resources is the one that the scheduler would make: it has no resourceVersion.
    """

    pod: Object
    claims: tuple[Json, ...]
    alike: str

    @property
    def uid(self) -> str:
        """The UID of the pod."""
        return str(self.pod["metadata"]["uid"])

    @property
    def priority(self) -> int:
        """The priority of the pod."""
        return priority_of(self.pod)

    def __str__(self) -> str:
        return name_of(self.pod)


class WaitingPods:
    """Finds the pods for which room may be made. What was found about a pod is kept until that changes."""

    def __init__(self, exempt: Exempt) -> None:
        self._exempt = exempt
        self._known: dict[str, Waiting] = {}

    def among(
        self, pods: Iterable[Object], claims: Mapping[Key, Json], classes: Sequence[Json]
    ) -> list[Waiting]:
        """The pods that the scheduler has refused, with claims: the most important first, then the oldest.

        All their claims are made: a quota may keep a claim from being made, and then no room helps.
        """
        found = {}
        for pod in pods:
            if not asks(pod) or self._exempt.covers(pod):
                continue
            its_claims = claims_of(pod, claims, classes)
            if not its_claims:
                continue
            uid = str(pod["metadata"]["uid"])
            known = self._known.get(uid)
            # The watches keep an object until it changes.
            if known is None or known.pod is not pod or not _same(known.claims, its_claims):
                known = Waiting(pod, its_claims, _alike(pod, its_claims))
            found[uid] = known
        self._known = found
        return sorted(found.values(), key=lambda one: (-one.priority, created(one.pod), one.uid))


def _same(some: Sequence[Json], others: Sequence[Json]) -> bool:
    return len(some) == len(others) and all(
        one is other or ("resourceVersion" not in one["metadata"] and one == other)
        for one, other in zip(some, others, strict=True)
    )


def asks(pod: Json) -> bool:
    """Whether the pod waits because no node fits, may preempt others, and asks for devices."""
    spec = pod["spec"]
    if spec.get("nodeName") or "deletionTimestamp" in pod["metadata"]:
        return False
    if spec.get("preemptionPolicy") == "Never" or spec.get("schedulingGates"):
        return False
    if not (spec.get("resourceClaims") or asked_resources(pod)):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        (one["type"], one["status"], one.get("reason")) == ("PodScheduled", "False", "Unschedulable")
        for one in conditions
    )


def claims_of(pod: Json, claims: Mapping[Key, Json], classes: Sequence[Json]) -> tuple[Json, ...]:
    """The claims of a pod; none if one of them is not made yet, is not its own, or is being deleted."""
    namespace = pod["metadata"]["namespace"]
    found = []
    for entry in claim_entries(pod):
        claim = claims.get((namespace, entry.claim or ""))
        if claim is None or "deletionTimestamp" in claim["metadata"]:
            return ()
        if entry.template is not None and not is_made_for(claim, pod):
            return ()
        found.append(claim)
    extended = _extended(pod, claims, classes)
    return () if extended is None else (*found, *extended)


def _extended(pod: Json, claims: Mapping[Key, Json], classes: Sequence[Json]) -> tuple[Json, ...] | None:
    """The claim for the pod's extended resources, made or to be made; None if it cannot be made."""
    namespace, made = pod["metadata"]["namespace"], extended_claim(pod)
    if made is not None:
        claim = claims.get((namespace, made))
        return None if claim is None else (claim,)
    asked = [name for name, amount in pod_amounts(pod).items() if amount]
    backed = {name: class_of(name, classes) for name in asked}
    known = {name: device_class for name, device_class in backed.items() if device_class is not None}
    requests = list(extended_requests(pod, known).requests)
    if not requests:
        return ()
    name = f"{pod['metadata']['name']}-extended-resources"
    return (
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"},
            "spec": {"devices": {"requests": requests}},
        },
    )


def _alike(pod: Json, claims: Iterable[Json]) -> str:
    """A text that is the same for pods that ask for the same in every respect that matters."""
    spec = {key: value for key, value in pod["spec"].items() if key not in ("resourceClaims", "volumes")}
    for field in ("containers", "initContainers"):
        spec[field] = [{key: one.get(key) for key in _CONTAINER_FIELDS} for one in spec.get(field) or ()]
    volumes = [one for one in pod["spec"].get("volumes") or () if not any(key in one for key in _LOCAL_VOLUMES)]
    asked = [
        # A claim that several pods share, or that has devices, is not like any other.
        one["metadata"]["uid"] if (one.get("status") or {}) else one["spec"]
        for one in claims
    ]
    labels, namespace = pod["metadata"].get("labels"), pod["metadata"]["namespace"]
    return json.dumps([namespace, labels, spec, volumes, asked], sort_keys=True, default=str)


def priority_of(pod: Json) -> int:
    """The priority of a pod, which admission has put into its spec."""
    return int(pod["spec"].get("priority") or 0)


def created(pod: Json) -> str:
    """When a pod was created, as RFC 3339 in UTC."""
    return str(pod["metadata"].get("creationTimestamp") or "")


def name_of(pod: Json) -> str:
    """``namespace/name``."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
