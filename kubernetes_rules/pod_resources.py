"""Sums up the resources of a pod's containers, and fills in pod-level resources from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from kubernetes_rules.quantity import Quantity

Json = Mapping[str, Any]
Object = dict[str, Any]
Amounts = dict[str, Quantity]

COMPUTE = ("cpu", "memory")
"""The pod-level resources whose request may be lower than their limit."""

HUGE = "hugepages-"
"""The prefix of resources that are memory in pages of one size: ``hugepages-2Mi``."""


# Pods ask for the same few amounts over and over.
_parsed = lru_cache(maxsize=4096)(Quantity.parse)


def amounts_of(resources: Json, kind: str) -> Amounts:
    """The ``limits`` or ``requests`` as quantities."""
    return {name: _parsed(str(text)) for name, text in (resources.get(kind) or {}).items()}


def container_total(spec: Json, kind: str) -> Amounts:
    """The most that containers have at a time: all containers and sidecars, or one init container at start.

    Go: AggregateContainerRequests and AggregateContainerLimits in component-helpers/resource.
    """
    running = _added(
        {}, [amounts_of(one.get("resources") or {}, kind) for one in spec.get("containers") or []]
    )
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or []:
        own = amounts_of(container.get("resources") or {}, kind)
        # restartPolicy Always makes an init container a sidecar: it runs on beside all later containers.
        if container.get("restartPolicy") == "Always":
            running, sidecars = _added(running, [own]), _added(sidecars, [own])
            most = _larger(most, sidecars)
        else:
            most = _larger(most, _added(own, [sidecars]))
    return _larger(running, most)


def defaulted_pod_resources(spec: Json) -> Object:
    """The ``resources`` of a new pod's spec with their defaults; unchanged if it sets no resource itself.

    Each request that is missing becomes the sum of the containers' requests, else the pod's own limit. Each
    limit that is missing becomes the sum of the containers' limits, if all of them have one.
    Go: DefaultPodLevelResources in pkg/api/pod.
    """
    own = dict(spec.get("resources") or {})
    limits, requests = amounts_of(own, "limits"), amounts_of(own, "requests")
    if not limits and not requests:
        return own
    total = container_total(spec, "limits")
    limits |= {
        name: amount
        for name, amount in total.items()
        if name.startswith(HUGE) and name not in limits and name not in requests
    }
    asked = {name: one for name, one in container_total(spec, "requests").items() if name in COMPUTE}
    limited = {name: one for name, one in limits.items() if _is_compute(name)}
    requests = {**limited, **asked, **requests}
    # A limit below the request would be invalid.
    for name, amount in requests.items():
        if _is_compute(name) and name not in limits and name in total and _all_limit(spec, name):
            limits[name] = amount if amount.value > total[name].value else total[name]
    for kind, amounts in (("limits", limits), ("requests", requests)):
        if amounts:
            own[kind] = {name: str(amount) for name, amount in amounts.items()}
    return own


def quality_of_service(spec: Json) -> str:
    """The class of a pod by its requests and limits: Guaranteed, Burstable or BestEffort.

    Go: ComputePodQOS in pkg/apis/core/v1/helper/qos.
    """
    own = spec.get("resources")
    if own is not None:
        return _class_of(own)
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    classes = {_class_of(one.get("resources") or {}) for one in containers}
    return classes.pop() if len(classes) == 1 else "Burstable" if classes else "BestEffort"


def _class_of(resources: Json) -> str:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if not requests and not limits:
        return "BestEffort"
    classes = set()
    for name in COMPUTE:
        asked, limit = (_parsed(str(one.get(name, 0))).value for one in (requests, limits))
        classes.add("Burstable" if asked != limit else "Guaranteed" if asked else "BestEffort")
    return classes.pop() if len(classes) == 1 else "Burstable"


def _is_compute(name: str) -> bool:
    return name in COMPUTE or name.startswith(HUGE)


def _all_limit(spec: Json, name: str) -> bool:
    containers = [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]
    return all(name in ((one.get("resources") or {}).get("limits") or {}) for one in containers)


def _added(amounts: Amounts, more: Iterable[Amounts]) -> Amounts:
    found = dict(amounts)
    for one in more:
        for name, amount in one.items():
            found[name] = found[name].plus(amount) if name in found else amount
    return found


def _larger(amounts: Amounts, others: Amounts) -> Amounts:
    found = dict(amounts)
    for name, amount in others.items():
        if name not in found or amount.value > found[name].value:
            found[name] = amount
    return found
