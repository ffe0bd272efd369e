"""Turns the extended resources that pods ask for into requests of the claim that they get (KEP-5004)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.quantity import Quantity, parse_quantity
from kubernetes_rules.validation.names import is_extended_resource_name

Json = Mapping[str, Any]
Object = dict[str, Any]
Amounts = dict[str, int]

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""With the name of a class behind it, a resource that this class stands for (ResourceDeviceClassPrefix)."""

CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
"""``true`` on the claim that the scheduler makes for a pod's extended resources."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container: its place among init containers and containers, and the texts of what it asks for."""

    index: int
    name: str
    requests: Mapping[str, str]
    short_lived: bool


@dataclass(frozen=True, slots=True)
class ExtendedRequests:
    """The requests of the special claim, and which container uses which (requestMappings)."""

    requests: list[Object]
    mappings: list[Object]


def class_of(resource: str, classes: Iterable[Json]) -> str | None:
    """The name of the DeviceClass behind an extended resource, None without one.

    Of classes with the resource as extendedResourceName the newest is taken, of equally old ones the first by
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
    """Whether a DeviceClass can stand for a resource (Go: IsDRAExtendedResourceName in scheduler/util)."""
    return name.startswith(IMPLICIT_PREFIX) or is_extended_resource_name(name)


def provides(node: Json, resource: str) -> bool:
    """Whether the node itself has some of a resource, by a device plugin; no claim is made there then."""
    amount = ((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")
    return str(amount) != "0"


def pod_amounts(pod: Json) -> Amounts:
    """How much of each extended resource a pod needs at a time: as quota counts it, and the scheduler.

    Containers and sidecars need theirs together, other init containers one after the other beside the
    sidecars before them. Go: PodRequests in component-helpers/resource/helpers.go.
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
    """The requests for the resources that are the keys of ``classes``, each of the class that is its value.

    Init containers that end use what later containers have before they ask for more, and share the largest of
    what they still need. Go: createRequestsAndMappings in plugins/dynamicresources.
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


def _short_lived(
    containers: Sequence[Container], resource: str, device_class: str, lasting: Mapping[int, Object]
) -> tuple[Object | None, list[Object]]:
    """The one request that init containers need beyond those of others, and their mappings."""
    largest: Object | None = None
    mappings: list[Object] = []
    names = set()
    for container in (one for one in containers if one.short_lived):
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
    name = f"container-{container.index}-request-{sorted(container.requests).index(resource)}"
    mappings.append({**mapping, "requestName": name})
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": wanted}
    return {"name": name, "exactly": exactly}, mappings


def _containers(pod: Json) -> list[Container]:
    """Init containers, then containers; limits are requests where no request is named, as in a stored pod."""
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
    """A number of devices; what is no whole number asks for none."""
    value = parse_quantity(text)
    return int(value) if value == value.to_integral_value() else 0
