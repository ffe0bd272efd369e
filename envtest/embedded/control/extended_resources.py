"""Turns the extended resources that containers ask for into requests of the claim that stands for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubernetes_rules.quantity import parse_quantity

Object = dict[str, Any]

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Container:
    """A container that may ask: its index among init containers and containers, and its requests."""

    index: int
    name: str
    requests: Mapping[str, int]
    keys: Sequence[str]
    short_lived: bool


@dataclass(frozen=True, slots=True)
class ExtendedRequests:
    """The requests of the special claim, and which container uses which (requestMappings)."""

    requests: list[Object]
    mappings: list[Object]


def class_of(resource: str, classes: Sequence[Object]) -> str | None:
    """The DeviceClass behind an extended resource: the newest with this name, or the one named in it."""
    named = [one for one in classes if one["spec"].get("extendedResourceName") == resource]
    if named:
        newest = max(one["metadata"].get("creationTimestamp", "") for one in named)
        young = (
            one["metadata"]["name"] for one in named if one["metadata"].get("creationTimestamp", "") == newest
        )
        return str(min(young))
    name = resource.removeprefix(IMPLICIT_PREFIX)
    if name != resource and any(one["metadata"]["name"] == name for one in classes):
        return name
    return None


def asked_resources(pod: Mapping[str, Any]) -> list[str]:
    """The extended resources that any container of the pod asks for, sorted."""
    counts = (container.requests for container in _containers(pod))
    return sorted({name for asked in counts for name, count in asked.items() if count})


def is_extended(name: str) -> bool:
    """Whether a resource is neither one of Kubernetes' own nor a quota's."""
    domain, slash, _ = name.partition("/")
    if name.startswith(IMPLICIT_PREFIX):
        return True
    ours = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return bool(slash) and not ours and not name.startswith("requests.")


def extended_requests(pod: Mapping[str, Any], classes: Mapping[str, str]) -> ExtendedRequests:
    """The requests for these resources, by the class of each; init containers use those of others first."""
    requests: list[Object] = []
    mappings: list[Object] = []
    containers = _containers(pod)
    for resource in sorted(classes):
        lasting: dict[int, Object] = {}
        late: list[Object] = []
        for container in (one for one in containers if not one.short_lived):
            made, mapped = _asked_by(container, resource, classes[resource], [])
            mappings += mapped
            if made is not None:
                lasting[container.index] = made
        largest, made_short = None, set()
        for container in (one for one in containers if one.short_lived):
            usable = [lasting[index] for index in sorted(lasting) if index >= container.index]
            made, mapped = _asked_by(container, resource, classes[resource], usable)
            late += mapped
            if made is not None:
                made_short.add(made["name"])
                if largest is None or largest["exactly"]["count"] < made["exactly"]["count"]:
                    largest = made
        if largest is not None:
            requests.append(largest)
            for mapping in late:
                if mapping["requestName"] in made_short:
                    mapping["requestName"] = largest["name"]
        requests += lasting.values()
        mappings += late
    return ExtendedRequests(sorted(requests, key=lambda one: str(one["name"])), mappings)


def _asked_by(
    container: Container, resource: str, device_class: str, usable: Sequence[Object]
) -> tuple[Object | None, list[Object]]:
    """The request that a container needs beyond those it can use, and its mappings."""
    wanted = container.requests.get(resource, 0)
    mapping = {"containerName": container.name, "resourceName": resource}
    mappings: list[Object] = []
    if not wanted:
        return None, mappings
    for request in usable:
        mappings.append({**mapping, "requestName": request["name"]})
        wanted -= request["exactly"]["count"]
        if wanted <= 0:
            return None, mappings
    name = f"container-{container.index}-request-{list(container.keys).index(resource)}"
    mappings.append({**mapping, "requestName": name})
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": wanted}
    return {"name": name, "exactly": exactly}, mappings


def _containers(pod: Mapping[str, Any]) -> list[Container]:
    spec = pod["spec"]
    initial = [(one, one.get("restartPolicy") != "Always") for one in spec.get("initContainers", ())]
    found = []
    for index, (one, short) in enumerate([*initial, *((one, False) for one in spec["containers"])]):
        resources = one.get("resources", {})
        asked = {**resources.get("limits", {}), **resources.get("requests", {})}
        counts = {name: int(parse_quantity(str(value))) for name, value in asked.items() if is_extended(name)}
        found.append(Container(index, one["name"], counts, sorted(asked), short))
    return found
