"""Counts the use of ResourceQuotas, and refuses objects that would exceed them.

Counted are objects (``count/RESOURCE.GROUP`` and the older ``pods``...), the devices of claims by class
and by extended resource, what pods request and limit, and the ports and load balancers of services.
``kubernetes_rules.quota`` says how much each is. An update is not refused for what it adds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from envtest.embedded.api.resources import Catalogue, Resource
from envtest.embedded.api.statuses import Refused, details_of
from envtest.embedded.api.store import Store
from kubernetes_rules.pod_claims import CLAIM_ANNOTATION, controlling_pod, extended_claim, pod_amounts
from kubernetes_rules.quantity import Quantity
from kubernetes_rules.quota import (
    device_charges,
    missing_amounts,
    pod_charges,
    quota_counts,
    requests_name,
    service_charges,
)

Object = dict[str, Any]
Usage = dict[str, Quantity]

_QUOTAS = ("", "resourcequotas")
_DRA = "resource.k8s.io"
_CLASSES = (_DRA, "deviceclasses")
_PLAIN_COUNTS = frozenset({"pods", "configmaps", "resourcequotas", "secrets", "services"})
_NONE, _ONE = Quantity.parse("0"), Quantity.parse("1")


class Quotas:
    """The quotas of all namespaces. To be called while the store is held."""

    def __init__(self, store: Store, catalogue: Catalogue) -> None:
        self._store = store
        self._catalogue = catalogue

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
                raise _forbidden(resource, item, text)
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
        # Events have a second group for one collection, and resources several versions: each counts once.
        counted = {one.collection: one for one in reversed(self._catalogue.resources) if one.namespaced}
        for resource in counted.values():
            if resource.stored_group is None:
                for item in self._store.in_namespace(resource.collection, namespace):
                    if not quota_counts(quota, resource.plural, item):
                        continue
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
            case "services":
                usage |= _quantities(service_charges(item))
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
        return _forbidden(resource, item, text)


def _forbidden(resource: Resource, item: Object, text: str) -> Refused:
    name = item["metadata"].get("name", "")
    message = f'{resource.qualified_name} "{name}" is forbidden: {text}'
    return Refused(403, message, details=details_of(resource.group, resource.plural, name))


def _pod_usage(pod: Object) -> dict[str, int]:
    return {requests_name(name): amount for name, amount in pod_amounts(pod).items()}


def _quantities(counts: Mapping[str, int]) -> Usage:
    return {name: Quantity.parse(str(count)) for name, count in counts.items()}


def _is_over(amount: Quantity, hard: Any) -> bool:
    return amount.value > Quantity.parse(str(hard)).value
