"""Counts the use of ResourceQuotas, and refuses objects that would exceed them.

Counted are objects (``count/RESOURCE.GROUP`` and the older ``pods``...), the devices of claims by class
and by extended resource, and the extended resources of pods. Compute quantities (``requests.cpu``...) are
not. A quota with scopes counts pods by their priority classes; with any other scope it limits nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from envtest.embedded.api.resources import Catalogue, Resource
from envtest.embedded.api.statuses import Refused, details_of
from envtest.embedded.api.store import Store
from kubernetes_rules.extended_resources import CLAIM_ANNOTATION, pod_amounts
from kubernetes_rules.pod_claims import controlling_pod, extended_claim
from kubernetes_rules.quantity import Quantity
from kubernetes_rules.quota import device_charges, quota_counts, requests_name

Object = dict[str, Any]
Usage = dict[str, int]

_QUOTAS = ("", "resourcequotas")
_DRA = "resource.k8s.io"
_CLASSES = (_DRA, "deviceclasses")
_PLAIN_COUNTS = frozenset({"pods", "configmaps", "resourcequotas"})


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
            used = self._used(quota)
            hard = (quota.get("spec") or {}).get("hard") or {}
            exceeded = sorted(
                name
                for name, amount in wanted.items()
                if name in hard and amount and used[name] + amount > _number(hard[name])
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

    def _used(self, quota: Object) -> Mapping[str, int]:
        """The use of everything by the objects that a quota counts."""
        # Counted anew each time: kube-apiserver reads the status instead, which a controller corrects.
        total: dict[str, int] = defaultdict(int)
        namespace = quota["metadata"]["namespace"]
        # Events have a second group for one collection, and resources several versions: each counts once.
        counted = {one.collection: one for one in reversed(self._catalogue.resources) if one.namespaced}
        for resource in counted.values():
            if resource.stored_group is None:
                for item in self._store.in_namespace(resource.collection, namespace):
                    if not quota_counts(quota, resource.plural, item):
                        continue
                    for name, amount in self._usage(resource, item).items():
                        total[name] += amount
        return total

    def _usage(self, resource: Resource, item: Object) -> Usage:
        usage: Usage = {f"count/{resource.qualified_name}": 1}
        if resource.plural in _PLAIN_COUNTS:
            usage[resource.plural] = 1
        if resource.plural == "resourceclaims":
            usage |= self._claim_usage(item)
        elif resource.plural == "pods":
            # A pod that has ended no longer counts as one of ``pods`` or for resources, but still for
            # count/pods.
            ended = (item.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            usage = {**usage, "pods": 0} if ended else usage | _pod_usage(item)
        return usage

    def _claim_usage(self, claim: Object) -> Usage:
        return device_charges(claim.get("spec") or {}, self._device_class, self._pod_charge(claim))

    def _device_class(self, name: str) -> Object | None:
        return self._store.get(_CLASSES, ("", name))

    def _pod_charge(self, claim: Object) -> Usage:
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
        used: Mapping[str, int],
    ) -> Refused:
        hard = quota["spec"]["hard"]

        def shown(amounts: Mapping[str, Any]) -> str:
            return ",".join(f"{name}={amounts[name]}" for name in exceeded)

        name = item["metadata"].get("name", "")
        text = (
            f'{resource.qualified_name} "{name}" is forbidden: exceeded quota: {quota["metadata"]["name"]}, '
            f"requested: {shown(wanted)}, used: {shown({key: used[key] for key in exceeded})}, "
            f"limited: {shown(hard)}"
        )
        return Refused(403, text, details=details_of(resource.group, resource.plural, name))


def _pod_usage(pod: Object) -> Usage:
    return {requests_name(name): amount for name, amount in pod_amounts(pod).items()}


def _number(text: Any) -> int:
    return Quantity.parse(str(text)).scaled(0)
