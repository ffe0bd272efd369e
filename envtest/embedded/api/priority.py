"""Gives pods the priority of their PriorityClass, as Kubernetes' admission plugin Priority does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envtest.embedded.api.statuses import Refused, details_of

if TYPE_CHECKING:
    from envtest.embedded.api.store import Store

Object = dict[str, Any]

_CLASSES = ("scheduling.k8s.io", "priorityclasses")
_FIELDS = ("priority", "preemptionPolicy")
_SYSTEM: dict[str, Object] = {
    name: {"metadata": {"name": name}, "value": value}
    for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))
}
"""The classes that every cluster has."""


def admit_priority(store: Store, pod: Object) -> None:
    """Write priority and preemption policy into a new pod; raises Refused (403)."""
    spec = pod.get("spec")
    if not spec:
        return
    found = _class_of(store, pod)
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
    value = 0 if found is None else found["value"]
    policy = (found or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    ending = "priority admission controller computed {} from the given PriorityClass name"
    if spec.get("priority", value) != value:
        told = f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
        raise _forbidden(pod, told + ending.format(value))
    if spec.get("preemptionPolicy", policy) != policy:
        told = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod "
        )
        raise _forbidden(pod, f"{told}spec; {ending.format(policy)}")
    spec |= {"priority": value, "preemptionPolicy": policy}


def keep_priority(pod: Object, stored: Object) -> None:
    """A pod that is written without what admission gave it keeps that."""
    for name in _FIELDS:
        if name in (stored.get("spec") or {}) and name not in (pod.get("spec") or {}):
            pod["spec"] = {**(pod.get("spec") or {}), name: stored["spec"][name]}


def _class_of(store: Store, pod: Object) -> Object | None:
    """The class that the pod names, or the one for those that name none; raises Refused (403)."""
    name = pod["spec"].get("priorityClassName")
    if name:
        found = store.get(_CLASSES, ("", name)) or _SYSTEM.get(name)
        if found is None:
            raise _forbidden(pod, f"no PriorityClass with name {name} was found")
        return found
    classes = [item for _, item in store.items(_CLASSES) if item.get("globalDefault")]
    return min(classes, key=lambda one: int(one["value"]), default=None)


def _forbidden(pod: Object, text: str) -> Refused:
    name = pod["metadata"].get("name", "")
    return Refused(403, f'pods "{name}" is forbidden: {text}', details=details_of("", "pods", name))
