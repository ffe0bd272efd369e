"""Sums up what the containers of a pod ask for, and fills in what the pod as a whole asks for then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubernetes_rules.quantity import Quantity

Json = Mapping[str, Any]
Object = dict[str, Any]
Amounts = dict[str, Quantity]

COMPUTE = ("cpu", "memory")
"""The resources that can be requested without a limit, or below it, by a pod as a whole."""

HUGE = "hugepages-"
"""What the names of resources begin with that are memory in pages of a size."""


def amounts_of(resources: Json, kind: str) -> Amounts:
    """The ``limits`` or ``requests`` as quantities."""
    return {name: Quantity.parse(str(text)) for name, text in (resources.get(kind) or {}).items()}


def container_total(spec: Json, kind: str) -> Amounts:
    """What containers and sidecars have together, or an init container beside the sidecars before it.

    Go: AggregateContainerRequests and AggregateContainerLimits in component-helpers/resource.
    """
    running = _added(
        {}, [amounts_of(one.get("resources") or {}, kind) for one in spec.get("containers") or []]
    )
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in spec.get("initContainers") or []:
        asked = amounts_of(container.get("resources") or {}, kind)
        if container.get("restartPolicy") == "Always":
            running, sidecars = _added(running, [asked]), _added(sidecars, [asked])
            most = _larger(most, sidecars)
        else:
            most = _larger(most, _added(asked, [sidecars]))
    return _larger(running, most)


def defaulted_pod_resources(spec: Json) -> Object:
    """The ``resources`` of a new pod's spec, as far as there are any, with their defaults.

    What the containers request and the pod does not, it requests; what it limits and does not request, it
    requests as well; what all containers limit is limited. Go: DefaultPodLevelResources in pkg/api/pod.
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
    for name, amount in requests.items():
        if _is_compute(name) and name not in limits and name in total and _all_limit(spec, name):
            limits[name] = amount if amount.value > total[name].value else total[name]
    for kind, amounts in (("limits", limits), ("requests", requests)):
        if amounts:
            own[kind] = {name: str(amount) for name, amount in amounts.items()}
    return own


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
