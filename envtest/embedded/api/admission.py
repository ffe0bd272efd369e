"""Admits writes, as the admission plugins of Kubernetes do.

The namespace has to be there, device requests with admin access need its label. The ServiceAccount, the
RuntimeClass and the PriorityClass of a pod have to be there; the pod gets the priority of the last.

ResourceQuotas count objects (``count/RESOURCE.GROUP`` and the older ``pods``...), the devices of claims by
class and by extended resource, and what pods request and limit.
``kubernetes_rules.quota`` says how much each is. An update is not refused for what it adds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from envtest.embedded.api.resources import RESOURCES, Resource
from envtest.embedded.api.statuses import Refused, details_of, invalid
from envtest.embedded.api.store import Store
from kubernetes_rules.pod_claims import CLAIM_ANNOTATION, controlling_pod, extended_claim, pod_amounts
from kubernetes_rules.quantity import Quantity
from kubernetes_rules.quota import (
    device_charges,
    missing_amounts,
    pod_charges,
    quota_counts,
    requests_name,
)
from kubernetes_rules.validation.field import FieldError, forbidden

Object = dict[str, Any]
Usage = dict[str, Quantity]

_QUOTAS = ("", "resourcequotas")
_DRA = "resource.k8s.io"
_CLASSES = (_DRA, "deviceclasses")
_PLAIN_COUNTS = frozenset({"pods", "configmaps", "resourcequotas", "secrets", "services"})
_NONE, _ONE = Quantity.parse("0"), Quantity.parse("1")

NAMESPACES = ("", "namespaces")
# The immortal namespaces of the admission plugin NamespaceLifecycle.
_IMMORTAL = ("default", "kube-public", "kube-system")
_ADMIN_LABEL = "resource.kubernetes.io/admin-access"
_ADMIN_TEXT = f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the containing namespace"

_PRIORITY_CLASSES = ("scheduling.k8s.io", "priorityclasses")
_RUNTIME_CLASSES = ("node.k8s.io", "runtimeclasses")
_SERVICE_ACCOUNTS = ("", "serviceaccounts")
_FIELDS = ("priority", "preemptionPolicy")
_NODE_FAILURES = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_NODE_FAILURE_SECONDS = 300
_SYSTEM_CLASSES: dict[str, Object] = {
    name: {"metadata": {"name": name}, "value": value}
    for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))
}
"""The classes that every cluster has."""


def admit_namespace(store: Store, resource: Resource, namespace: str, name: str) -> None:
    """Raises Refused when nothing can be created in the namespace: 404 if it is not there, 403 if it ends."""
    found = store.get(NAMESPACES, ("", namespace))
    if found is None:
        details = details_of("", "namespaces", namespace)
        raise Refused(404, f'namespaces "{namespace}" not found', details=details)
    if "deletionTimestamp" in found["metadata"]:
        text = (
            f'{resource.qualified_name} "{name}" is forbidden: unable to create new content in namespace '
            f"{namespace} because it is being terminated"
        )
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        details = {**details_of(resource.group, resource.plural, name), "causes": [cause]}
        raise Refused(403, text, details=details)


def admit_delete(resource: Resource, name: str) -> None:
    """Raises Refused (403) for the namespaces that no cluster can be without."""
    if resource.collection == NAMESPACES and name in _IMMORTAL:
        text = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        raise Refused(403, text, details=details_of("", "namespaces", name))


def admit_admin_access(store: Store, item: Object, old: Object | None) -> None:
    """Raises Refused (422) when a claim, a template or an allocation has admin access that is not allowed."""
    error = _admin_error(item, old)
    if error is None:
        return
    namespace = store.get(NAMESPACES, ("", item["metadata"].get("namespace", "")))
    labels = {} if namespace is None else namespace["metadata"].get("labels") or {}
    if labels.get(_ADMIN_LABEL) != "true":
        raise invalid("resource.k8s.io", item["kind"], item["metadata"].get("name", ""), [error])


def _admin_error(item: Object, old: Object | None) -> FieldError | None:
    """The error that holds unless the namespace has the label; None where no admin access is added."""
    spec = item.get("spec") or {}
    if item.get("kind") == "ResourceClaimTemplate":
        spec = spec.get("spec") or {}
    elif item.get("kind") != "ResourceClaim":
        return None
    if old is None:
        # firstAvailable has no admin access.
        for index, request in enumerate((spec.get("devices") or {}).get("requests") or []):
            if (request.get("exactly") or {}).get("adminAccess") is True:
                return forbidden(f"spec.devices.requests[{index}].adminAccess", _ADMIN_TEXT)
        return None
    # An allocation is immutable, so one that has admin access was admitted when it was written.
    if any(result.get("adminAccess") for result in _results(old)):
        return None
    for index, result in enumerate(_results(item)):
        if result.get("adminAccess"):
            path = f"status.allocation.devices.results[{index}].adminAccess"
            return forbidden(path, _ADMIN_TEXT)
    return None


def _results(claim: Object) -> list[Object]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


def complete_pod(store: Store, pod: Object, namespace: str) -> None:
    """Write into a new pod what admission adds; raises Refused (403)."""
    if pod.get("spec"):
        _admit_account(store, pod, namespace)
        _admit_priority(store, pod)
        admit_tolerations(pod)
        runtime = pod["spec"].get("runtimeClassName")
        if runtime and store.get(_RUNTIME_CLASSES, ("", runtime)) is None:
            raise _forbidden(pod, f'pod rejected: RuntimeClass "{runtime}" not found')


def _admit_account(store: Store, pod: Object, namespace: str) -> None:
    """Raises Refused (403) where the service account of a pod is missing."""
    name = pod["spec"].get("serviceAccountName") or "default"
    # A controller makes ``default`` in each namespace, and Kubernetes waits for it.
    if name != "default" and store.get(_SERVICE_ACCOUNTS, (namespace, name)) is None:
        text = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise _forbidden(pod, text)


def _admit_priority(store: Store, pod: Object) -> None:
    """Write priority and preemption policy into a new pod; raises Refused (403)."""
    spec = pod["spec"]
    found = _class_of(store, pod)
    if found is not None:
        spec["priorityClassName"] = found["metadata"]["name"]
    value = 0 if found is None else found["value"]
    policy = (found or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    computed = {"priority": value, "preemptionPolicy": policy}
    for name, given in computed.items():
        if spec.get(name, given) != given:
            text = f"{name} ({spec[name]}) must not be provided in pod spec; its PriorityClass gives {given}"
            raise _forbidden(pod, text)
    spec |= computed


def admit_tolerations(pod: Object) -> None:
    """Let a pod stay for five minutes on a node that fails (plugin DefaultTolerationSeconds)."""
    tolerations = pod["spec"].get("tolerations") or []
    missing = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _NODE_FAILURE_SECONDS}
        for key in _NODE_FAILURES
        if not any(
            (one.get("key") or key) == key and (one.get("effect") or "NoExecute") == "NoExecute"
            for one in tolerations
        )
    ]
    if missing:
        pod["spec"]["tolerations"] = [*tolerations, *missing]


def keep_priority(pod: Object, stored: Object) -> None:
    """Keep the priority and the preemption policy of a pod that is updated without them."""
    for name in _FIELDS:
        if name in (stored.get("spec") or {}) and name not in (pod.get("spec") or {}):
            pod["spec"] = {**(pod.get("spec") or {}), name: stored["spec"][name]}


def _class_of(store: Store, pod: Object) -> Object | None:
    """The class that the pod names, or the one for those that name none; raises Refused (403)."""
    name = pod["spec"].get("priorityClassName")
    if name:
        found = store.get(_PRIORITY_CLASSES, ("", name)) or _SYSTEM_CLASSES.get(name)
        if found is None:
            raise _forbidden(pod, f"no PriorityClass with name {name} was found")
        return found
    classes = [item for _, item in store.items(_PRIORITY_CLASSES) if item.get("globalDefault")]
    # Of several global defaults the lowest counts (admission plugin Priority).
    return min(classes, key=lambda one: int(one["value"]), default=None)


def _forbidden(pod: Object, text: str) -> Refused:
    name = pod["metadata"].get("name", "")
    return Refused(403, f'pods "{name}" is forbidden: {text}', details=details_of("", "pods", name))


class Quotas:
    """The quotas of all namespaces. To be called while the store is held."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, resource: Resource, item: Object) -> None:
        """Raises Refused (403) when the new object would exceed a quota of its namespace."""
        namespace = item["metadata"].get("namespace", "")
        quotas = self._of(namespace)
        if not quotas:
            return
        wanted = self._usage(resource, item)
        for quota in quotas:
            if not quota_counts(quota, resource.plural, item):
                continue
            missing = missing_amounts(item, quota) if resource.plural == "pods" else ""
            if missing:
                text = f"failed quota: {quota['metadata']['name']}: {missing}"
                raise _over_quota(resource, item, text)
            used = self._used(quota)
            hard = (quota.get("spec") or {}).get("hard") or {}
            exceeded = sorted(
                name
                for name, amount in wanted.items()
                if name in hard and amount.value and _is_over(used[name].plus(amount), hard[name])
            )
            if exceeded:
                raise self._refusal(resource, item, quota, exceeded, wanted, used)

    def refresh(self, namespace: str) -> None:
        """Write the present use into the status of the namespace's quotas."""
        quotas = self._of(namespace)
        if not quotas:
            return
        for quota in quotas:
            used = self._used(quota)
            hard = (quota.get("spec") or {}).get("hard") or {}
            status = {"hard": hard, "used": {name: str(used[name]) for name in hard}}
            if quota.get("status") != status:
                key = (namespace, quota["metadata"]["name"])
                self._store.put(_QUOTAS, key, {**quota, "status": status})

    def _of(self, namespace: str) -> list[Object]:
        return self._store.in_namespace(_QUOTAS, namespace) if namespace else []

    def _used(self, quota: Object) -> Mapping[str, Quantity]:
        """The use of everything by the objects that a quota counts."""
        # Counted anew each time: kube-apiserver reads the status instead, which a controller corrects.
        total: dict[str, Quantity] = defaultdict(lambda: _NONE)
        namespace = quota["metadata"]["namespace"]
        for resource in RESOURCES:
            for item in self._store.in_namespace(resource.collection, namespace):
                if quota_counts(quota, resource.plural, item):
                    for name, amount in self._usage(resource, item).items():
                        total[name] = total[name].plus(amount)
        return total

    def _usage(self, resource: Resource, item: Object) -> Usage:
        usage: Usage = {f"count/{resource.qualified_name}": _ONE}
        if resource.plural in _PLAIN_COUNTS:
            usage[resource.plural] = _ONE
        match resource.plural:
            case "resourceclaims":
                usage |= _quantities(self._claim_usage(item))
            case "pods":
                # A pod that has ended no longer counts as one of ``pods`` or for resources, but still for
                # count/pods.
                ended = (item.get("status") or {}).get("phase") in ("Succeeded", "Failed")
                usage = {**usage, "pods": _NONE} if ended else usage | pod_charges(item)
        return usage

    def _claim_usage(self, claim: Object) -> dict[str, int]:
        return device_charges(claim.get("spec") or {}, self._device_class, self._pod_charge(claim))

    def _device_class(self, name: str) -> Object | None:
        return self._store.get(_CLASSES, ("", name))

    def _pod_charge(self, claim: Object) -> dict[str, int]:
        """The use that a pod is already charged for, where the claim was made for its extended resources."""
        metadata = claim["metadata"]
        if (metadata.get("annotations") or {}).get(CLAIM_ANNOTATION) != "true":
            return {}
        owner = controlling_pod(claim)
        if owner is None:
            return {}
        pod = self._store.get(("", "pods"), (metadata.get("namespace", ""), owner[0]))
        if pod is None or pod["metadata"]["uid"] != owner[1]:
            return {}
        return {} if extended_claim(pod) not in (None, metadata.get("name")) else _pod_usage(pod)

    def _refusal(
        self,
        resource: Resource,
        item: Object,
        quota: Object,
        exceeded: list[str],
        wanted: Usage,
        used: Mapping[str, Quantity],
    ) -> Refused:
        hard = quota["spec"]["hard"]

        def shown(amounts: Mapping[str, Any]) -> str:
            return ",".join(f"{name}={amounts[name]}" for name in exceeded)

        text = (
            f"exceeded quota: {quota['metadata']['name']}, requested: {shown(wanted)}, "
            f"used: {shown({key: used[key] for key in exceeded})}, limited: {shown(hard)}"
        )
        return _over_quota(resource, item, text)


def _over_quota(resource: Resource, item: Object, text: str) -> Refused:
    name = item["metadata"].get("name", "")
    message = f'{resource.qualified_name} "{name}" is forbidden: {text}'
    return Refused(403, message, details=details_of(resource.group, resource.plural, name))


def _pod_usage(pod: Object) -> dict[str, int]:
    return {requests_name(name): amount for name, amount in pod_amounts(pod).items()}


def _quantities(counts: Mapping[str, int]) -> Usage:
    return {name: Quantity.parse(str(count)) for name, count in counts.items()}


def _is_over(amount: Quantity, hard: Any) -> bool:
    return amount.value > Quantity.parse(str(hard)).value
