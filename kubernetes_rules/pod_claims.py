"""The claims of a pod: those of its spec, and the one for its extended resources (KEP-5004)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kubernetes_rules.quantity import Quantity, parse_quantity
from kubernetes_rules.validation.names import is_extended_resource_name

Json = Mapping[str, Any]
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ClaimEntry:
    """An entry of ``spec.resourceClaims`` and the name of its claim, None until the claim is created.

    ``template`` names the ResourceClaimTemplate, None if the pod names a claim itself. The pod may use a
    claim from a template only if ``is_made_for`` says so.
    """

    name: str
    claim: str | None
    template: str | None


def claim_entries(pod: Json) -> list[ClaimEntry]:
    """The entries of a pod (core/v1) in their order, without those that need no claim.

    Go: Name in dynamic-resource-allocation/resourceclaim/resourceclaim.go.
    """
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    made = {one["name"]: one.get("resourceClaimName") for one in statuses}
    found = []
    for entry in pod["spec"].get("resourceClaims") or ():
        name = entry["name"]
        if entry.get("resourceClaimName"):
            found.append(ClaimEntry(name, str(entry["resourceClaimName"]), None))
        # An entry in resourceClaimStatuses without a name says that no claim is needed.
        elif name not in made or made[name]:
            found.append(ClaimEntry(name, made.get(name), entry.get("resourceClaimTemplateName")))
    return found


def extended_claim(pod: Json) -> str | None:
    """The name of the claim that the scheduler made for a pod's extended resources, None without one."""
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    return str(status["resourceClaimName"]) if status else None


def controlling_pod(claim: Json) -> tuple[str, str] | None:
    """Name and UID of the pod that controls a claim, None if no pod does."""
    # An object has at most one owner with ``controller``.
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            is_pod = (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod")
            return (str(owner.get("name")), str(owner.get("uid"))) if is_pod else None
    return None


def is_made_for(claim: Json, pod: Json) -> bool:
    """Whether a claim was made for this pod: the pod is its controller, with the same UID.

    Go: IsForPod in dynamic-resource-allocation/resourceclaim/resourceclaim.go.
    """
    return controlling_pod(claim) == (pod["metadata"]["name"], pod["metadata"].get("uid") or "")


def unmade_claim(name: str, namespace: str, spec: Json) -> Object:
    """A claim that does not exist yet, as it will be made."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"},
        "spec": spec,
    }


Amounts = dict[str, int]

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""``deviceclass.resource.kubernetes.io/NAME`` is the implicit extended resource of the DeviceClass NAME.

Go: ResourceDeviceClassPrefix.
"""

CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
"""``true`` on the claim that the scheduler makes for a pod's extended resources."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container: its index among init containers and containers, and its requests as texts.

    ``short_lived`` is an init container that ends before the containers start, so not a sidecar.
    """

    index: int
    name: str
    requests: Mapping[str, str]
    short_lived: bool


@dataclass(frozen=True, slots=True)
class ExtendedRequests:
    """The requests of the pod's special claim, and which container uses which (requestMappings)."""

    requests: list[Object]
    mappings: list[Object]


def class_of(resource: str, classes: Iterable[Json]) -> str | None:
    """The name of the DeviceClass behind an extended resource, None if there is none.

    Of several classes with this extendedResourceName the newest counts, of equally old ones the first by
    name. Go: dynamic-resource-allocation/deviceclass/extendedresourcecache.
    """
    listed = list(classes)
    named = [one for one in listed if one["spec"].get("extendedResourceName") == resource]
    if named:
        newest = max(_created(one) for one in named)
        return min(str(one["metadata"]["name"]) for one in named if _created(one) == newest)
    name = resource.removeprefix(IMPLICIT_PREFIX)
    known = name != resource and any(one["metadata"]["name"] == name for one in listed)
    return name if known else None


def is_extended(name: str) -> bool:
    """Whether a DeviceClass can provide a resource (Go: IsDRAExtendedResourceName in scheduler/util)."""
    return name.startswith(IMPLICIT_PREFIX) or is_extended_resource_name(name)


def provides(node: Json, resource: str) -> bool:
    """Whether a device plugin provides the resource on the node: then the scheduler makes no claim there."""
    amount = ((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")
    return str(amount) != "0"


def pod_amounts(pod: Json) -> Amounts:
    """How much of each extended resource a pod needs at a time, as the quota and the scheduler count it.

    Containers and sidecars need theirs together. Other init containers need theirs one after the other,
    beside the sidecars before them. Go: PodRequests in component-helpers/resource/helpers.go.
    """
    running: Amounts = {}
    most: Amounts = {}
    for one in _containers(pod):
        asked = {name: text for name, text in one.requests.items() if is_extended(name)}
        beside = dict(running)
        for name, text in asked.items():
            beside[name] = beside.get(name, 0) + Quantity.parse(text).scaled(0)
        if one.short_lived:
            most = _larger(most, beside)
        else:
            running = beside
    return _larger(most, running)


def asked_resources(pod: Json) -> list[str]:
    """The extended resources that any container of the pod asks for, sorted."""
    return sorted(name for name, amount in pod_amounts(pod).items() if amount)


def extended_requests(pod: Json, classes: Mapping[str, str]) -> ExtendedRequests:
    """The requests of a pod's special claim; ``classes`` maps extended resources to names of DeviceClasses.

    A short-lived init container uses the devices of later containers first. All of them share one more
    request, the largest that any of them still needs.
    Go: createRequestsAndMappings in plugins/dynamicresources.
    """
    requests: list[Object] = []
    mappings: list[Object] = []
    containers = _containers(pod)
    for resource, device_class in sorted(classes.items()):
        lasting: dict[int, Object] = {}
        for container in (one for one in containers if not one.short_lived):
            made, mapped = _asked_by(container, resource, device_class, [])
            mappings += mapped
            if made is not None:
                lasting[container.index] = made
        largest, late = _short_lived(containers, resource, device_class, lasting)
        requests += [*([] if largest is None else [largest]), *lasting.values()]
        mappings += late
    return ExtendedRequests(sorted(requests, key=lambda one: str(one["name"])), mappings)


class ExtendedResources:
    """The extended resources of one pod that has no claim for them yet (KEP-5004).

    A node with a device plugin for a resource gives it from there; for other nodes the scheduler makes a
    claim for the DeviceClass that names it. Go: filterExtendedResources in plugins/dynamicresources.
    """

    def __init__(
        self, pod: Json, classes: Sequence[Json], nodes: Sequence[Json], pods: Sequence[Json]
    ) -> None:
        """``pods`` are those on nodes, the others do not matter."""
        self._pod = pod
        self._pods = pods
        self._asked = {name: amount for name, amount in pod_amounts(pod).items() if amount}
        self._class_of = {name: class_of(name, classes) for name in sorted(self._asked)}
        self._claims: dict[tuple[str, ...], Object] = {}
        self.nowhere = tuple(
            name
            for name, device_class in self._class_of.items()
            if device_class is None and not any(provides(node, name) for node in nodes)
        )
        """The resources that no DeviceClass names and no node has."""

    @property
    def asks_devices(self) -> bool:
        """Whether the pod asks for any extended resource."""
        return bool(self._asked)

    def claim_on(self, node: Json) -> Object | None:
        """The claim that the pod would get on this node; None if it needs none there."""
        backed = {
            name: device_class
            for name, device_class in self._class_of.items()
            if device_class is not None and not provides(node, name)
        }
        key = tuple(backed)
        if key not in self._claims:
            requests = list(extended_requests(self._pod, backed).requests)
            name = f"{self._pod['metadata']['name']}-extended-resources"
            spec = {"devices": {"requests": requests}}
            claim = unmade_claim(name, self._pod["metadata"]["namespace"], spec)
            self._claims[key] = claim if requests else {}
        return self._claims[key] or None

    def missing_on(self, node: Json) -> str | None:
        """Which resource the node has neither from a device plugin nor by a claim; None if there is none."""
        for name, device_class in self._class_of.items():
            if device_class is None and name not in self.nowhere and not provides(node, name):
                return f"it has no {name}"
        return None

    def shortage_on(self, node: Json) -> str | None:
        """Which resource the node's device plugins have too little of now; None if they have enough."""
        for name, asked in self._asked.items():
            if not provides(node, name):
                continue
            there = Quantity.parse(str(node["status"]["allocatable"][name])).scaled(0)
            used = self._used[node["metadata"]["name"], name]
            if there - used < asked:
                pods = f", {used} of them for other pods" if used else ""
                return f"its device plugin has {there} {name}{pods}; the pod needs {asked}"
        return None

    @cached_property
    def _used(self) -> Counter[tuple[str, str]]:
        """How much device plugins have given to pods, by node and resource, without amounts by claims."""
        used: Counter[tuple[str, str]] = Counter()
        for pod in self._pods:
            held = by_claim(pod)
            for resource, amount in pod_amounts(pod).items():
                if resource in self._asked and resource not in held:
                    used[str(pod["spec"].get("nodeName")), resource] += amount
        return used


def by_claim(pod: Json) -> set[str]:
    """The extended resources that a pod has by a claim."""
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    return {str(one.get("resourceName")) for one in status.get("requestMappings") or ()}


def _short_lived(
    containers: Sequence[Container], resource: str, device_class: str, lasting: Mapping[int, Object]
) -> tuple[Object | None, list[Object]]:
    """The one request that short-lived init containers need beyond those of others, and their mappings."""
    largest: Object | None = None
    mappings: list[Object] = []
    names = set()
    for container in (one for one in containers if one.short_lived):
        # A container that starts later does not hold its devices yet; an earlier sidecar does.
        usable = [lasting[index] for index in sorted(lasting) if index >= container.index]
        made, mapped = _asked_by(container, resource, device_class, usable)
        mappings += mapped
        if made is not None:
            names.add(made["name"])
            if largest is None or largest["exactly"]["count"] < made["exactly"]["count"]:
                largest = made
    for mapping in mappings:
        if largest is not None and mapping["requestName"] in names:
            mapping["requestName"] = largest["name"]
    return largest, mappings


def _asked_by(
    container: Container, resource: str, device_class: str, usable: Sequence[Object]
) -> tuple[Object | None, list[Object]]:
    """The request that a container needs beyond those it can use, and its mappings."""
    wanted = _whole(container.requests.get(resource, "0"))
    mapping = {"containerName": container.name, "resourceName": resource}
    mappings: list[Object] = []
    if not wanted:
        return None, mappings
    for request in usable:
        mappings.append({**mapping, "requestName": request["name"]})
        wanted -= request["exactly"]["count"]
        if wanted <= 0:
            return None, mappings
    # The scheduler numbers containers, init containers first, and each one's requests by sorted name.
    name = f"container-{container.index}-request-{sorted(container.requests).index(resource)}"
    mappings.append({**mapping, "requestName": name})
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": wanted}
    return {"name": name, "exactly": exactly}, mappings


def _containers(pod: Json) -> list[Container]:
    """Init containers, then containers; a limit without a request is the request, as in a stored pod."""
    spec = pod["spec"]
    initial = spec.get("initContainers") or ()
    found = []
    for index, one in enumerate([*initial, *(spec.get("containers") or ())]):
        resources = one.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        found.append(
            Container(
                index,
                one.get("name") or "",
                {name: str(value) for name, value in asked.items()},
                index < len(initial) and one.get("restartPolicy") != "Always",
            )
        )
    return found


def _created(device_class: Json) -> str:
    return str(device_class["metadata"].get("creationTimestamp") or "")


def _larger(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def _whole(text: str) -> int:
    """A number of devices; a fraction asks for none."""
    value = parse_quantity(text)
    return int(value) if value == value.to_integral_value() else 0
